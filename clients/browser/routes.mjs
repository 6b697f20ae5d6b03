// Where the page shows what.
export const ROUTES = {
  sessions: "/#/sessions",
  session: (id) => `/#/sessions/${id}`,
  gateway: "/#/gateway",
  runs: "/#/runs",
  run: (id) => `/#/runs/${id}`,
  policies: "/#/policies",
  providers: "/#/providers",
};
