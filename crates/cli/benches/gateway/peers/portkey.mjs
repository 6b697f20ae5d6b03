// The gateway changes the headers of what it has fetched, which newer versions of Node refuse: it gets a copy that it may change.
const original = globalThis.fetch;
globalThis.fetch = async (...asked) => {
  const { body, status, statusText, headers } = await original(...asked);
  return new Response(body, { status, statusText, headers: new Headers(headers) });
};
