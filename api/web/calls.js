// Calls of the service. The key, if the service needs one, is in the memory of this page only.

import { element } from "./elements.js";

let key = "";
let bundle = null; // that of the first answer: figures of two bundles must not stand beside one another
const running = new Map(); // the answer of a computation under way -> what ends it

export const LOADING = "urn:saga:problem:loading"; // the service has started, but cannot answer yet
const MAPPING = /(; for a file, by|, or use) `scale.*(?=\.$)/; // advice for files with a mapping, which a form has not
const SHAPE = "urn:saga:problem:request"; // a request that a form makes of what was entered

/** An answer that is an error: its status, its kind, and the lines to show. */
export class CallError extends Error {
  constructor(status, document) {
    super(document.type === SHAPE ? "A value has the wrong form." : document.title ?? "The service does not answer");
    this.status = status;
    this.kind = document.type;
    const problems = document.problems ?? [];
    this.lines = problems.length ? problems.map((problem) => {
      const field = problem.year ? null : element(problem.column); // a field of the form has the name of its option
      const place = [problem.year && `year ${problem.year}`, problem.column && (field?.offsetParent ? field.labels[0].textContent : `column ${problem.column}`)];
      const where = place.filter(Boolean).join(", ");
      const fix = problem.fix.includes("JSON") ? "Correct it" : problem.fix; // a form sends JSON, its user does not
      return `${problem.message}${where ? ` (${where})` : ""}. ${fix}.`.replace("..", ".");
    }) : [document.detail].filter((text) => text && text !== this.message);
  }
}

/** Keep the key for the calls that follow. */
export function setKey(value) {
  key = value.trim();
}

/** The answer of a computation, as `callService` gives it. */
export function startCall(path, body, table) {
  const controller = new AbortController();
  const answer = callService(path, body, table, controller.signal);
  running.set(answer, controller);
  answer.catch(() => {}).finally(() => running.delete(answer));
  return answer;
}

/** Ends the computations under way whose answers are not among these: the service does the next call of a page after them. */
export function endOthers(answers = []) {
  for (const [answer, controller] of running) if (!answers.includes(answer)) controller.abort();
}

/** The JSON answer to GET, or to POST with a body, or with a table in Parquet and a body of options. Throws CallError. */
export async function callService(path, body, table, signal) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (body) headers["Content-Type"] = table ? "application/vnd.apache.parquet" : "application/json";
  const stated = Object.entries(body ?? {}).filter(([, value]) => value !== undefined && value.length !== 0);
  const address = table ? `${path}?${new URLSearchParams(stated)}` : path; // a list becomes values between commas
  let answer;
  try {
    answer = await fetch(address, { method: body ? "POST" : "GET", headers, body: table ?? (body && JSON.stringify(body)), signal });
  } catch {
    throw new CallError(0, { title: "The service cannot be reached. Is it still running?" });
  }
  const content = await answer.json().catch(() => null);
  if (!answer.ok || !content) throw new CallError(answer.status, content ?? {}); // the page of a proxy is no answer
  const from = content.provenance?.bundle ?? content.bundle;
  if (from) bundle ??= from;
  if (from && from !== bundle) throw new CallError(0, { title: "The service has another bundle since this page was loaded. Load the page again." });
  for (const warning of content.warnings ?? []) warning.message = warning.message.replace(MAPPING, "");
  return content;
}
