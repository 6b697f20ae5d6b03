// Server-sent events, read from pieces of text. Pure: no connection here.
//
// Read by hand, because a browser's own reader can send no token.

/** The longest event that is read; a longer one ends the connection. */
const LONGEST_EVENT = 64 * 1024 * 1024;

/** A reader: `push` takes a piece and returns the messages that are complete with it, as `{id, event, data}`. */
export function sseReader() {
  // Pieces of a line whose end has not come. They are put together once: a long line comes in many pieces.
  let rest = [];
  let restSize = 0;
  let id;
  let event = "";
  let data = [];
  let size = 0;
  let endedWithReturn = false;

  const take = (line, out) => {
    if (line === "") {
      if (data.length > 0) out.push({ id, event: event || "message", data: data.join("\n") });
      [event, data, size] = ["", [], 0];
      return;
    }
    if (line.startsWith(":")) return;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") data.push(value);
    else if (name === "event") event = value;
    else if (name === "id" && !value.includes("\0")) id = value;
    size += value.length;
  };

  return {
    push(piece) {
      const out = [];
      // A line may end with `\r`, whose `\n` comes with the next piece.
      const text = endedWithReturn && piece.startsWith("\n") ? piece.slice(1) : piece;
      if (piece !== "") endedWithReturn = piece.endsWith("\r");
      const lines = text.split(/\r\n|\n|\r/);
      const last = lines.pop() ?? "";
      if (lines.length > 0) {
        lines[0] = rest.join("") + lines[0];
        [rest, restSize] = [[], 0];
      }
      rest.push(last);
      restSize += last.length;
      for (const line of lines) take(line, out);
      if (restSize + size > LONGEST_EVENT) throw new Error("an event is too long");
      return out;
    },
  };
}
