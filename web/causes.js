// What went wrong, in words, colour and shape. Colours never stand alone: each group has a shape of its own.

const PHRASES = {
  overloaded: "Server overloaded",
  rate_limited: "Rate limited",
  usage_limit: "Usage limit reached",
  server_error: "Server error",
  network: "Connection failed",
  timeout: "Request timed out",
  stalled: "Stream stalled",
  truncated_stream: "Stream cut off",
  empty_output: "Empty answer",
  command_failed: "Command failed",
  auth: "Credential refused",
  permission: "Permission denied",
  billing: "Out of credit",
  invalid_request: "Request refused",
  payload_too_large: "Request too large",
  model_not_found: "Model not found",
  content_filter: "Refused by a content filter",
  missing_binary: "Program not found",
  misconfigured: "Set-up is wrong",
  internal: "Internal error",
  unknown: "Unknown error",
  context_overflow: "Context window exceeded",
  ceiling_reached: "Budget ceiling reached",
  schema_mismatch: "Output does not match its schema",
  malformed_output: "Output is malformed",
  contract_broken: "Contract broken",
  tests_failed: "Tests failed",
  interrupted: "Cancelled",
  deadline_passed: "Deadline passed",
};

const GROUPS = {
  overloaded: "load",
  rate_limited: "rate",
  usage_limit: "usage",
  server_error: "server",
  network: "network",
  timeout: "slow",
  stalled: "slow",
  truncated_stream: "network",
};

/** The groups, as a legend shows them. */
export const LEGEND = [
  { group: "load", label: "Overloaded" },
  { group: "rate", label: "Rate limited" },
  { group: "usage", label: "Usage limit" },
  { group: "server", label: "Server error" },
  { group: "network", label: "Connection" },
  { group: "slow", label: "Timeout, stall" },
  { group: "other", label: "Other" },
];

/** The cause in words for a person. */
export function phrase(cause) {
  return Object.hasOwn(PHRASES, cause ?? "") ? PHRASES[cause] : "Something went wrong";
}

/** The group of causes that it is shown with. */
export function group(cause) {
  return Object.hasOwn(GROUPS, cause ?? "") ? GROUPS[cause] : "other";
}

/** The outline of a mark of that group around a point. */
export function outline(name, x, y, radius = 5) {
  const r = radius;
  switch (name) {
    case "load":
      return circle(x, y, r);
    case "rate":
      return `M${x} ${y - r}L${x + r} ${y + r * 0.8}L${x - r} ${y + r * 0.8}Z`;
    case "usage":
      return `M${x - r} ${y - r * 0.8}L${x + r} ${y - r * 0.8}L${x} ${y + r}Z`;
    case "server":
      return `M${x - r * 0.85} ${y - r * 0.85}h${r * 1.7}v${r * 1.7}h${-r * 1.7}Z`;
    case "network":
      return `M${x} ${y - r * 1.15}L${x + r * 1.15} ${y}L${x} ${y + r * 1.15}L${x - r * 1.15} ${y}Z`;
    case "slow":
      return `M${x - r * 0.5} ${y - r}h${r}l${r * 0.5} ${r}l${-r * 0.5} ${r}h${-r}l${-r * 0.5} ${-r}Z`;
    default:
      return `M${x - r} ${y - r * 0.4}h${r * 0.6}v${-r * 0.6}h${r * 0.8}v${r * 0.6}h${r * 0.6}v${r * 0.8}h${-r * 0.6}v${r * 0.6}h${-r * 0.8}v${-r * 0.6}h${-r * 0.6}Z`;
  }
}

function circle(x, y, r) {
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${r * 2} 0a${r} ${r} 0 1 0 ${-r * 2} 0Z`;
}
