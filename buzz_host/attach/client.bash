# What a program of this person runs as a hook before each prompt: it prints what Buzz's plugins say now, or nothing.
# Called as `client ATTACHMENT PART` with the hook's JSON on standard input. It asks the running host (`buzz serve`) on
# loopback; where none answers, it prints the last set on disk, and leaves a note for the ledger first. Whatever happens,
# it is quick, silent, and ends with 0: a prompt of a person never waits for us and never fails through us.
# Made by `buzz attach`; do not edit, it is written anew.

exec 2>/dev/null
trap '' PIPE
umask 077
LC_ALL=C
here=${0%/*} id=$1 part=$2 speaker='' answer='' revision=''

# Of several attachments that this session runs, the one of the nearest folder speaks, and the others are silent:
# the folder itself, the git checkout it is in, the main checkout of a worktree, and last the person's own settings.
decide() {
  local folder=${CLAUDE_PROJECT_DIR:-$PWD} checkout main='' line name at rank best=0
  checkout=$folder
  while [[ $checkout && ! -e $checkout/.git ]]; do checkout=${checkout%/*}; done
  if [[ $checkout && -f $checkout/.git ]]; then
    IFS= read -r line <"$checkout/.git" && main=${line#gitdir: }
    [[ $main == */.git/worktrees/* ]] && main=${main%/.git/worktrees/*} || main=''
  fi
  while IFS=$'\t' read -r name at; do
    rank=0
    if [[ ! $at ]]; then rank=1
    elif [[ $at == "$folder" ]]; then rank=4
    elif [[ $at == "$checkout" ]]; then rank=3
    elif [[ $at == "$main" ]]; then rank=2
    fi
    ((rank > best)) && best=$rank speaker=$name
  done <"$here/speakers"
}

# The answer of the running host. A port that a dead host left may belong to anybody now, so the token goes to the very
# process that wrote the endpoint, and to no other.
ask() {
  local version port token pid started stat word size
  IFS=' ' read -r version port token pid started <"$here/endpoint" || return 1
  [[ $version == 1 && $started ]] || return 1
  if [[ -e /proc/self/stat ]]; then
    IFS= read -r stat <"/proc/$pid/stat" || return 1
    set -- ${stat##*) }
    [[ ${20} == "$started" ]] || return 1
  fi
  exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
  printf 'BUZZ1 %s %s %s %s\n%s' "$token" "$id" "$part" "${#input}" "$input" >&3 || return 1
  IFS=' ' read -r -t 2 word size <&3 || return 1
  [[ $word == BUZZ1 && $size && $size != *[!0-9]* ]] || return 1
  if ((size)); then
    IFS= read -r -t 0.5 -N "$size" answer <&3
    [[ ${#answer} == "$size" ]] || return 1
    printf '%s' "$answer" || return 0
  fi
  printf '+' >&3
  return 0
}

# The last set on disk. No note, no text: what was handed over has to be in the ledger.
remembered() {
  local note
  IFS= read -r revision <"$here/$id/current" || return
  IFS= read -r -N 1000000 answer <"$here/$id/$revision/part-$part.json"
  [[ $answer || $part == 1 ]] || return
  note=$here/spool/$EPOCHREALTIME-$$-$part
  [[ $input == *',"prompt":'* ]] && input=${input%%',"prompt":'*}'}'
  input=${input//$'\n'/}
  printf '1 %s %s %s %s %s\n' "$id" "$part" "$revision" "$EPOCHREALTIME" "$input" >"$note" || return
  printf '%s' "$answer"
}

decide
[[ $speaker && $speaker != "$id" ]] && exit 0
# The prompt stands last in the hook's JSON, and may be long. The host is given its beginning, to tell apart two messages
# that the program gives one id; a note has nothing of it.
IFS= read -r -t 1 -N 16384 input
ask || remembered
exit 0
