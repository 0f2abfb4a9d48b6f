import type { appRouter } from '../router.ts'

/** One tag for each router. */
export const TAGS: Record<keyof (typeof appRouter)['_def']['record'] | 'health', string> = {
  agents: 'Assistants, each with a name, a role, a system prompt and a visibility.',
  executions: 'Runs of agents: their state, their result, and their events as they happen.',
  approvals: 'Tool calls that wait for the decision of a person.',
  models: 'The language models that agents can use.',
  spaces: 'Workspaces, with instructions for every run in them, agents, chats and files.',
  files: 'Files of spaces.',
  chats: 'Conversations with agents.',
  tasks: 'Work items, for people and for agents.',
  keys: 'Your personal access tokens.',
  media: 'Uploaded files, to show to agents.',
  mcps: 'Remote servers of the Model Context Protocol, whose tools agents can use.',
  missions: 'Long-running work of agents, which start by hand or on a schedule.',
  skills: 'Reusable prompts that agents load when they need them.',
  organizations: 'Your organization, and what it allows in its runs.',
  limits: 'Your rate limits.',
  audit: 'The log of changes in your organization, for its admins.',
  events: 'Events of your organization: the feed of the events that webhooks announce.',
  webhooks: 'Addresses that receive the events of your organization, for its admins.',
  profile: 'Your user, and the organizations that you belong to.',
  client: 'For client libraries. They take an ID token of your identity provider, too.',
  providers: 'Model providers with keys of your organization, which runs use instead of those of the server.',
  sessions: 'Signing in with a browser. A page of this service must send `X-Muster-Request: 1` with each POST.',
  secrets: 'Encrypted values that the MCP servers and web requests of runs may use. Lists have their names only.',
  usage: 'Usage of runs, by day, week or month. Takes an ID token of your identity provider, too.',
  health: 'The state of this server. Needs no token.',
}

/** Returns the introduction to the API. `prefix`: the beginning of tokens. */
export const describe = (prefix: string) => `Runs your organization's AI agents.

**Authentication.** A request carries \`Authorization: Bearer ${prefix}_…\` with a personal access token. The token acts as its
user, in one organization, within its scopes. An ID token of your identity provider, and the cookie of a signed-in browser,
act with all scopes. The header \`X-Organization: <id or slug>\` names their organization; a GET may send
\`?organization=\` instead. A user of one organization may leave it out. A \`write\` scope includes its \`read\`, and \`*\`
includes all. An agent's tools for tasks and files stay within the scopes of the token that started the run. In a mission they
stay within the scopes of the token that created it or last changed it.

**Answers** are JSON with \`success: true\`. They may have more fields than this document names: ignore unknown ones.

**Errors** are JSON with \`error: true\`. After a 429, 502, 503 or 504, wait as long as \`Retry-After\` says and repeat the
request, with the same \`Idempotency-Key\`. A 500 with an \`executionId\` is a run that failed: read \`code\` and \`detail\`
before you run the agent again. Report the \`requestId\` of any other 500 to the operator. After other errors, correct the
request first. Every answer has an \`X-Request-Id\`: yours if you sent one.

**Unknown names.** An unknown query parameter is a 400 that names the nearest known one; \`_\` and \`utm_*\` are ignored. An
unknown field of a body is accepted: the answer lists it in \`warnings\`, and \`X-Muster-Warnings\` has their number.

**Methods.** Paths with GET also answer HEAD. Any other method that a path does not have is a 405 whose \`Allow\` lists the
methods.

**Rate limits.** If the operator has set a limit, answers carry \`RateLimit\`, \`RateLimit-Policy\` and \`X-RateLimit-*\`. Beyond
a limit the answer is 429 with \`Retry-After\`.

**Lists** come newest first, in pages of \`limit\` rows. The \`nextCursor\` of a page is the \`cursor\` of the next one, and
null on the last page.`
