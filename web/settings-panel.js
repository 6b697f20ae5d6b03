// The settings of a session: whether and how failures are retried, which model is asked, what it is called.

import { api, part } from "./api.js";
import { attempt, openDialog } from "./dialog.js";
import { append, h } from "./dom.js";
import { line } from "./text.js";

/** Opens the settings of a session; `changed()` is called after each change. */
export async function openSettings(id, changed) {
  const at = `sessions/${part(id)}`;
  await attempt(async () => {
    const [settings, models, policies] = await Promise.all([
      api(`${at}/settings`),
      api(`${at}/models`).catch(() => ({ models: [] })),
      api("policies").catch(() => ({ policies: [] })),
    ]);
    const change = (fields) =>
      attempt(async () => {
        await api(`${at}/settings`, { method: "PATCH", body: fields });
        changed();
      });
    const content = h("form", { class: "stack settings", onsubmit: (event) => event.preventDefault() });
    append(
      content,
      titleField(settings, change),
      modelField(settings, models.models ?? [], change),
      policyField(settings, policies.policies ?? [], change),
      toggle("auto_retry", "Retry failures", "Without it, a failure ends the turn at once.", settings, change),
      toggle(
        "auto_compaction",
        "Make long conversations smaller",
        "Before they are more than the model can read.",
        settings,
        change,
      ),
    );
    openDialog({ title: "Session settings", content, test: "settings-dialog" });
  });
}

function titleField(now, change) {
  const input = h("input", { id: "set-title", value: now.title ?? "", maxlength: "200" });
  input.addEventListener("change", () => change({ title: input.value.trim() }));
  return field("set-title", "Title", input);
}

function modelField(now, models, change) {
  const name = (provider, model) => JSON.stringify([provider ?? "", model ?? ""]);
  const current = name(now.provider, now.model);
  const known = models.map(({ id, name: label, provider }) => ({ value: name(provider, id), label, provider }));
  if (!known.some(({ value }) => value === current)) {
    known.unshift({ value: current, label: now.model || "default", provider: now.provider ?? "" });
  }
  const providers = [...new Set(known.map(({ provider }) => provider))];
  const options = (wanted) => known.filter(({ provider }) => provider === wanted).map(option(current));
  const select = h(
    "select",
    { id: "set-model", test: "model-select" },
    providers.map((provider) => h("optgroup", { label: line(provider, 60) || "models" }, options(provider))),
  );
  select.addEventListener("change", () => {
    const [provider, model] = JSON.parse(select.value);
    change({ ...(provider ? { provider } : {}), model });
  });
  return field("set-model", "Model", select);
}

function policyField(now, policies, change) {
  const names = policies.map(({ name }) => name);
  if (now.policy && !names.includes(now.policy)) names.unshift(now.policy);
  const options = names.map((name) => option(now.policy)({ value: name, label: name }));
  const select = h("select", { id: "set-policy", test: "policy-select" }, options);
  select.addEventListener("change", () => change({ policy: select.value }));
  return field("set-policy", "Retry policy", select, "How often and how long after one another failures are retried.");
}

function option(current) {
  return ({ value, label }) => h("option", { value, selected: value === current }, line(label, 100));
}

function field(id, label, control, hint) {
  return h("div", { class: "field" }, h("label", { for: id }, label), control, hint && h("p", { class: "quiet" }, hint));
}

function toggle(name, label, hint, now, change) {
  const box = h("input", { type: "checkbox", role: "switch", id: `set-${name}`, checked: now[name] !== false, test: name });
  box.addEventListener("change", async () => {
    if (!(await change({ [name]: box.checked }))) box.checked = !box.checked;
  });
  return h("div", { class: "field toggle" }, box, h("label", { for: box.id }, label, h("span", { class: "quiet" }, hint)));
}
