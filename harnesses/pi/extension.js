// What Buzz adds to Pi, as an extension of it: plugins' tools, the permissions of an agent, its system prompt, and the
// model endpoint of a session. It has no dependencies, and runs in the 0.74 and the 1.x line.
//
// A session's own facts come from a private file that is removed as soon as it was read: no token is in the environment,
// where a shell that Pi starts could read it. Permissions are asked for over Pi's own protocol, as a dialog.

import { readFileSync, unlinkSync } from "node:fs";
import { request } from "node:http";

const KEPT = Symbol.for("buzz.pi.setup");
const PERMISSION = "buzz:permission";
const READY = "buzz:ready";

// Pi may load this again in the same process, when the file is gone.
function setup() {
  if (globalThis[KEPT] === undefined) {
    const path = process.env.BUZZ_PI_SETUP;
    const said = readFileSync(path, "utf8");
    unlinkSync(path);
    delete process.env.BUZZ_PI_SETUP;
    globalThis[KEPT] = JSON.parse(said);
  }
  return globalThis[KEPT];
}

// node:http, not fetch: that gives up after five minutes without an answer, and a tool may take longer.
function post(url, token, message, signal) {
  return new Promise((resolve, reject) => {
    const body = Buffer.from(JSON.stringify(message), "utf8");
    const headers = {
      "content-type": "application/json",
      "content-length": body.length,
      accept: "application/json, text/event-stream",
      authorization: `Bearer ${token}`,
    };
    const asked = request(url, { method: "POST", headers, signal, agent: false }, (answer) => {
      const pieces = [];
      answer.on("data", (piece) => pieces.push(piece));
      answer.on("error", reject);
      answer.on("end", () => resolve({ status: answer.statusCode, text: Buffer.concat(pieces).toString("utf8") }));
    });
    asked.on("error", reject);
    asked.end(body);
  });
}

function block(piece) {
  switch (piece.type) {
    case "text":
      return { type: "text", text: piece.text };
    case "image":
      return { type: "image", data: piece.data, mimeType: piece.mimeType };
    case "resource":
      return { type: "text", text: [piece.resource?.uri, piece.resource?.text].filter(Boolean).join("\n") };
    default:
      return { type: "text", text: JSON.stringify(piece) };
  }
}

async function call(gateway, tool, id, given, signal) {
  const params = { name: tool.tool, arguments: given ?? {} };
  const message = { jsonrpc: "2.0", id, method: "tools/call", params };
  const { status, text } = await post(`${gateway.url}/${tool.server}`, gateway.token, message, signal);
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Error(`the tool '${tool.name}' was not called: the host answered with status ${status}`);
  }
  if (answer?.result === undefined) {
    const why = answer?.error?.message ?? answer?.error ?? `status ${status}`;
    throw new Error(`the tool '${tool.name}' was not called: ${typeof why === "string" ? why : JSON.stringify(why)}`);
  }
  const content = (answer.result.content ?? []).map(block);
  if (answer.result.isError) {
    // Pi knows a failure by what is thrown, and that is words alone.
    throw new Error(content.map((each) => each.text ?? `[${each.type}]`).join("\n") || "the tool failed");
  }
  return { content, details: {} };
}

export default function (pi) {
  const { gateway, tools, policy, own, systemPrompt, provider } = setup();
  const ours = new Set(tools.map((each) => each.name));
  const allowed = new Set(own);
  const active = [...own, ...ours];
  // Pi makes arguments fit the schema, 5 into "5"; the host is to judge what the model said.
  const said = new Map();

  if (provider) {
    pi.registerProvider(provider.name, provider.config);
  }
  for (const tool of tools) {
    pi.registerTool({
      name: tool.name,
      label: tool.name,
      description: tool.description,
      parameters: tool.parameters,
      execute(id, given, signal) {
        const meant = said.get(id) ?? given;
        said.delete(id);
        return call(gateway, tool, id, meant, signal);
      },
    });
  }
  pi.on("message_end", ({ message }) => {
    if (message.role !== "assistant" || !Array.isArray(message.content)) return;
    said.clear();
    for (const piece of message.content) {
      if (piece.type === "toolCall" && ours.has(piece.name)) said.set(piece.id, structuredClone(piece.arguments));
    }
  });

  // A resumed conversation would bring the tools along that it had.
  pi.on("session_start", (event, ctx) => {
    pi.setActiveTools(active);
    ctx.ui.setStatus(READY, READY);
  });
  pi.on("before_agent_start", () => {
    pi.setActiveTools(active);
    return systemPrompt ? { systemPrompt } : undefined;
  });

  pi.on("tool_call", async (event, ctx) => {
    const { toolCallId, toolName, input } = event;
    if (ours.has(toolName)) return undefined;
    if (!allowed.has(toolName)) {
      return { block: true, reason: `the policy '${policy}' does not allow '${toolName}'` };
    }
    if (policy !== "ask") return undefined;
    let answer;
    try {
      const asked = JSON.stringify({ call: toolCallId, tool: toolName, arguments: input });
      answer = JSON.parse((await ctx.ui.input(PERMISSION, asked, { signal: ctx.signal })) ?? "null");
    } catch {
      answer = null; // what cannot be read allows nothing
    }
    if (answer?.decision === "allow") return undefined;
    return { block: true, reason: answer?.reason || "it was denied" };
  });
}
