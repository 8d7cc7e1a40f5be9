#!/bin/bash
# Copy an S3 object, or all objects below a folder (with --recursive), to the volume for prepare.py.
set -euo pipefail

fail() {
    echo "fetch.sh: $*" >&2
    exit 1
}

for name in FETCH_ADDRESS FETCH_PREFIX POD_UID; do
    [[ -n ${!name:-} ]] || fail "$name is not set: the data Job must set it"
done
folder=$FETCH_PREFIX$POD_UID
rm -rf "$folder"
mkdir -p "$folder/objects"
touch "$folder/started"
aws s3 cp --no-progress --only-show-errors "$@" "$FETCH_ADDRESS" "$folder/objects/" &
copy=$!
# The first process of a container ignores SIGTERM unless it has a handler.
trap 'kill "$copy" && wait "$copy" || true; fail "stopped by SIGTERM"' TERM
wait "$copy" || fail "$FETCH_ADDRESS cannot be copied: the lines above show the reason"
# If another data Job deleted the folder during the copy, this file is missing, and so may be objects.
mv "$folder/started" "$folder/done" || fail "another data Job deleted $folder"
echo "fetch.sh: $FETCH_ADDRESS is copied"
