# An MCP server for tests, in nothing but the shell: it reads a request from each line and writes an answer to it.
# $LOG is the file in which it notes its process and what was asked of it; $1 says how it behaves from the beginning.
note() { printf '%s\n' "$*" >>"$LOG"; }
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
says() { answer "{\"content\":[{\"type\":\"text\",\"text\":\"$1\"}],\"isError\":${2:-false}}"; }
tool() { printf '{"name":"%s","description":"%s","inputSchema":%s,"annotations":{"readOnlyHint":true}}' "$1" "$2" "${3:-{\}}"; }

note "pid $$"
case "$1" in
  broken) secret=0123456789abcdef0123; echo "there is no such database: token=sk-ant-$secret" >&2; exit 3 ;;
  mute) while :; do sleep 1000; done ;;
  stubborn) trap '' TERM ;;
esac

while read -r line || { [ "$1" = stubborn ] && sleep 1000; }; do
  id=${line#*\"id\":}; id=${id%%[,\}]*}
  case "$line" in
    *'"method":"initialize"'*)
      echo "Starting up, please wait"; echo '{"not":"a message"}'; echo '[1,2'
      answer '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"test","version":"1"}}' ;;
    *'"cursor":"second"'*)
      answer "{\"tools\":[$(tool 'a.b' first),$(tool 'a_b' second),$(tool 'größe!' strange),$(tool env '' ),$(tool once '' )]}" ;;
    *'"method":"tools/list"'*)
      schema='{"type":"object","properties":{"text":{"type":"string"}}}'
      list="$(tool echo 'says it\u001b[31m again' "$schema")"
      for name in fail refuse die hang huge endless; do list="$list,$(tool $name $name)"; done
      answer "{\"tools\":[$list],\"nextCursor\":\"second\"}" ;;
    *'"method":"notifications/cancelled"'*) note cancelled ;;
    *'"name":"echo"'*)
      note echo; echo "garbage before the answer"
      text=${line#*\"text\":\"}; says "heard ${text%%\"*}" ;;
    *'"name":"fail"'*) says "it does not work" true ;;
    *'"name":"refuse"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"wrong \\u001b[31marguments"}}\n' "$id" ;;
    *'"name":"die"'*) note die; echo "out of memory" >&2; kill -9 $$ ;;
    *'"name":"hang"'*) note hang ;;
    *'"name":"huge"'*) says "first$(head -c 300000 /dev/zero | tr '\0' x)last" ;;
    *'"name":"endless"'*) head -c 20000000 /dev/zero | tr '\0' x ;;
    *'"name":"env"'*) says "[$CARGO_PKG_NAME] [${CARGO_PKG_VERSION:+there}] [$OWN] [$(pwd)]" ;;
    *'"name":"größe!"'*) says strange ;;
    # The first time it comes to no end.
    *'"name":"once"'*) note once; [ "$(grep -c once "$LOG")" = 1 ] || says "done at last" ;;
  esac
done
