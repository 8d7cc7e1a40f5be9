#!/bin/bash
# Copy a finished training's output to S3, read it back, and succeed only if every byte is there.
set -euo pipefail
shopt -s globstar nullglob

fail() {
    echo "export.sh: $*" >&2
    echo "To run this Job again: pulumi up --replace '**Job::paddle-export'" >&2
    exit 1
}

# Copy what the filters (`--exclude ...`) leave of a folder, and compare size and SHA-256 of each file with S3's.
export_folder() {
    local name=$1 from=$2 to=$3 file count=0 bytes=0 size
    shift 3
    local -a filters=(--exclude '.*' --exclude '*/.*' "$@")
    aws s3 cp --recursive --only-show-errors "${filters[@]}" "$from" "$to" || fail "$name cannot be copied to $to"
    rm -rf "$back"
    mkdir "$back"
    aws s3 cp --recursive --only-show-errors "${filters[@]}" "$to" "$back" || fail "$name cannot be read back from $to"
    cd "$from"
    for file in **/*; do
        [[ -f $file && ($name != logs || $file != pass-*) ]] || continue
        [[ -f $back/$file ]] || fail "$to/$file is missing after the copy"
        size=$(stat -c %s "$file")
        [[ $(stat -c %s "$back/$file") == "$size" ]] || fail "$to/$file does not have the $size bytes of the original"
        [[ $(sha256sum <"$back/$file") == $(sha256sum <"$file") ]] || fail "$to/$file does not have the checksum of the original"
        count=$((count + 1)) bytes=$((bytes + size))
    done
    echo "export.sh: $name: $count files, $bytes bytes copied and checked"
}

for name in OUTPUT_DIR DONE_FILE DESTINATION; do
    [[ -n ${!name:-} ]] || fail "$name is not set: the export Job must give it"
done
[[ $DESTINATION == s3://*/* ]] || fail "DESTINATION is '$DESTINATION': it must be s3://bucket/prefix/"
back=$(mktemp -d)/copy
newest=""
for done in "$OUTPUT_DIR"/pass-*/"$DONE_FILE"; do
    folder=${done%/*}
    newest=${folder##*/}
    export_folder "$newest" "$folder" "${DESTINATION%/}/$newest"
done
[[ -n $newest ]] || fail "$OUTPUT_DIR has no complete pass: there is nothing to export"
export_folder logs "$OUTPUT_DIR" "${DESTINATION%/}" --exclude 'pass-*'
echo "export.sh: the newest pass is ${DESTINATION%/}/$newest"
