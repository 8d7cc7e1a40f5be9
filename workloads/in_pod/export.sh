#!/bin/bash
# Make a prefix in S3 contain exactly the output of a finished training, and send the message about the end of the
# training. Needs bash 4.2, coreutils and the AWS CLI.
set -euo pipefail
shopt -s dotglob nullglob
# With the default of 3, an outage of some seconds would fail the export.
export AWS_RETRY_MODE=standard AWS_MAX_ATTEMPTS=${AWS_MAX_ATTEMPTS:-8}

# Send a message with this subject and text, or file:// and the file with the text. A message that cannot be sent does
# not fail the Job.
send() {
    [[ -n ${TOPIC_ARN:-} ]] || return 0
    # Version 1 of the AWS CLI does not read AWS_REGION.
    if aws sns publish --region "$AWS_REGION" --topic-arn "$TOPIC_ARN" --subject "$1" --message "$2" >/dev/null; then
        echo "export.sh: sent the message '$1'"
    else
        echo "export.sh: the message '$1' could not be sent to $TOPIC_ARN" >&2
    fi
}

fail() {
    local again="To run this Job again: ${EXPORT_AGAIN:-}"
    local text="The training Job ${JOB_NAME:-} is complete, but its results could not be exported: $*"
    send "Export failed: ${JOB_NAME:-}" "$text"$'\n\n'"$again"
    echo "export.sh: $*" >&2
    echo "$again" >&2
    exit 1
}

skip() {
    printf 'export.sh: %q is skipped: %s\n' "$1" "$2"
}

# Repeat a command for some seconds while the volume returns a transient error. files.py explains these errors.
# The AWS CLI only warns about a file that it cannot open, so the warning counts as an error.
retry_transient() {
    local errors deadline=$((SECONDS + 10))
    errors=$(mktemp)
    until "$@" 2>"$errors"; do
        if ((SECONDS > deadline)) || ! grep -qE 'Stale file handle|Input/output error|Skipping file' "$errors"; then
            cat "$errors" >&2
            rm "$errors"
            return 1
        fi
        sleep 0.5
    done
    rm "$errors"
}

# Return when it is certain whether the file exists.
settle() {
    [[ -e $1 ]] || retry_transient stat -L -- "$1" &>/dev/null || true
}

# Valid UTF-8, byte by byte. S3 accepts no other names.
utf8=$'^([\x01-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}'
utf8+=$'|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*$'
longest_key=1024

# Set `why` if S3 cannot store a file with this name.
check_name() {
    local LC_ALL=C key=${to#s3://*/}/$1
    if [[ $1 == *[[:cntrl:]]* ]]; then
        why="its name contains a line break or another control character"
    elif [[ ! $1 =~ $utf8 ]]; then
        why="its name is not UTF-8 text"
    elif ((${#key} > longest_key)); then
        why="its name in S3 has ${#key} bytes, and S3 accepts $longest_key"
    fi
}

# Count the files below a folder of the staging area. Remove what S3 cannot store.
check_files() {
    local path name why
    for path in "$1"/*; do
        name=${path#"$stage"/} why=
        settle "$path"
        if [[ -d $path && ! -L $path ]]; then
            check_files "$path"
            continue
        elif [[ ! -e $path ]]; then
            why="it is a link to a file that does not exist"
        elif [[ -d $path ]]; then
            why="it is a link to a folder"
        elif [[ ! -f $path ]]; then
            why="it is not a regular file"
        elif [[ ${name##*/} == .nfs* ]]; then
            why="it is a deleted file that a process still uses"
        else
            check_name "$name"
        fi
        if [[ -n $why ]]; then
            skip "$name" "$why"
            rm "$path"
        else
            count=$((count + 1))
        fi
    done
}

needed=(JOB_NAME EXPORT_AGAIN TRAINING_AGAIN OUTPUT_DIR CHECKPOINT DONE_FILE MADE_FROM_FILE NEWEST_FILE DESTINATION
    FAILURE_FILE SUBJECT_FILE MESSAGE_FILE)
for name in "${needed[@]}"; do
    [[ -n ${!name:-} ]] || fail "$name is not set: the export Job must set it"
done
[[ $DESTINATION == s3://*/* ]] || fail "DESTINATION is '$DESTINATION': it must be s3://bucket/prefix/"
to=${DESTINATION%/}

if [[ -f $FAILURE_FILE ]]; then
    send "$(<"$SUBJECT_FILE")" "file://$MESSAGE_FILE"
    # The last lines become the reason of this Job, which `pulumi up` shows.
    echo "The training Job $JOB_NAME failed, so there is nothing to export: $(<"$FAILURE_FILE")" >&2
    echo "To run the training again: $TRAINING_AGAIN" >&2
    exit 1
fi

# The staging area has a link to each file. So `aws s3 sync` needs no filters, and deletes everything else in S3.
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
newest='' newest_number=-1
retry_transient ls -- "$OUTPUT_DIR" >/dev/null || fail "$OUTPUT_DIR cannot be read"
for path in "$OUTPUT_DIR"/*; do
    name=${path##*/}
    if [[ $name == .* ]]; then
        skip "$name" "at this place, names with a dot are for unfinished files"
        continue
    elif [[ $name == "$NEWEST_FILE" ]]; then
        skip "$name" "the export itself writes a file with this name"
        continue
    elif [[ $name =~ ^$CHECKPOINT$ ]]; then
        number=$((10#${BASH_REMATCH[1]}))
        settle "$path/$DONE_FILE"
        if [[ ! -f $path/$DONE_FILE ]]; then
            skip "$name" "the checkpoint is not complete, because it has no file $DONE_FILE"
            continue
        elif ((number > newest_number)); then
            newest=$name newest_number=$number
        fi
    fi
    retry_transient cp -rsf -- "$path" "$stage/" || fail "$path cannot be read"
done
[[ -n $newest ]] || fail "$OUTPUT_DIR has no complete checkpoint: there is nothing to export"
count=0
check_files "$stage"

# S3 computes the checksum of what it receives, and refuses an upload whose checksum differs.
transfer=(--no-progress --checksum-algorithm SHA256)
stamp=$stage/$MADE_FROM_FILE
settle "$stamp"
if [[ ! -f $stamp || $(aws s3 cp "$to/$MADE_FROM_FILE" - 2>/dev/null || true) != "$(retry_transient cat "$stamp")" ]]; then
    # Size and time show what has changed only if the same training wrote the files in S3. The stamp comes last.
    retry_transient aws s3 cp --recursive --only-show-errors "${transfer[@]}" --exclude "$MADE_FROM_FILE" "$stage" "$to" ||
        fail "the output cannot be copied to $to"
fi
sync=(aws s3 sync --delete --exclude "$NEWEST_FILE")
changes=$(retry_transient "${sync[@]}" "${transfer[@]}" "$stage" "$to") || fail "the output cannot be copied to $to: $changes"
if [[ -n $changes ]]; then
    left=$("${sync[@]}" --size-only --dryrun "$stage" "$to") || fail "$to cannot be listed"
    [[ -z $left ]] || fail "$to differs from the output after the copy: ${left%%$'\n'*}"
fi
# The newest checkpoint can have another number than job.passes says, if the code stops earlier.
if [[ $(aws s3 cp "$to/$NEWEST_FILE" - 2>/dev/null || true) != "$to/$newest/" ]]; then
    aws s3 cp --only-show-errors "${transfer[@]}" - "$to/$NEWEST_FILE" <<<"$to/$newest/" ||
        fail "$to/$NEWEST_FILE cannot be written"
fi
echo "export.sh: $to contains the $count files of the output"
echo "export.sh: the newest checkpoint is $to/$newest"
send "$(<"$SUBJECT_FILE")" "file://$MESSAGE_FILE"
