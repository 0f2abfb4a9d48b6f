import type { ErrorCode } from '../../src/wire.ts'

type ErrorHelp = { status?: string; when: string; action: string }

/** Describes the codes of refused requests. */
export const REQUEST_ERRORS = {
  missing_field: {
    status: '400',
    when: 'A required field is missing.',
    action: 'Send the field that `message` names.',
  },
  invalid_value: {
    status: '400',
    when: 'A field or query parameter has a value that is not allowed.',
    action: 'Change the field or parameter that `message` names.',
  },
  invalid_parameter: {
    status: '400',
    when: 'A query parameter is unknown.',
    action: 'Correct it. `detail` names the nearest known parameter.',
  },
  unauthorized: {
    status: '401',
    when: 'The token is missing, wrong or revoked.',
    action: 'Send a valid token as `Authorization: Bearer …`.',
  },
  token_expired: { status: '401', when: 'The token is past its `expiresAt`.', action: 'Create a new token.' },
  sign_in_required: {
    status: '401',
    when: 'A browser has no session, or its session has ended.',
    action: 'Sign in.',
  },
  insufficient_scope: {
    status: '403',
    when: 'The token lacks a scope.',
    action: 'Use a token with the scope that `detail` names.',
  },
  forbidden: {
    status: '403',
    when: "The user's role does not allow it.",
    action: 'Ask an admin of the organization.',
  },
  not_found: {
    status: '404',
    when: 'The caller can see no resource with that id.',
    action: 'Check the id, and the organization of the token.',
  },
  method_not_allowed: {
    status: '405',
    when: 'The path has no such method.',
    action: 'Use a method of the header `Allow`.',
  },
  conflict: {
    status: '409',
    when: 'The current state does not allow it.',
    action: 'Read the resource again, then decide.',
  },
  session_busy: {
    status: '409',
    when: 'A run of the session is active, and `onBusy` is `reject`.',
    action: 'Wait for the run, or send `onBusy: "queue"`.',
  },
  precondition_failed: {
    status: '412',
    when: 'The resource has changed since the caller read it.',
    action: 'Read it again and repeat the change.',
  },
  idempotency_conflict: {
    status: '422',
    when: 'The `Idempotency-Key` belongs to another request.',
    action: 'Use a new key.',
  },
  idempotency_in_progress: {
    status: '409',
    when: 'The first request with this key has not ended.',
    action: 'Repeat the request later.',
  },
  unsupported_media_type: {
    status: '415',
    when: 'The body has another content type.',
    action: 'Send the type that `detail` names.',
  },
  too_large: {
    status: '413, 431',
    when: 'The body, the headers or a file exceed their limit.',
    action: 'Send less. `detail` has the limit and the size.',
  },
  misdirected: {
    status: '421',
    when: 'The `Host` is not one of this server.',
    action: 'Use its address, or add the host to `ALLOWED_HOSTS`.',
  },
  rate_limited: {
    status: '429',
    when: 'Too many requests, or too many open connections.',
    action: 'Wait as long as `Retry-After` says.',
  },
  queue_full: {
    status: '429',
    when: 'The organization has too many waiting runs (`MAX_PENDING_RUNS`).',
    action: 'Wait for some of them to end. The operator can raise the setting.',
  },
  paused: {
    status: '503',
    when: 'The server started on a restored copy, or with `PAUSED=true`.',
    action: 'See [a restored copy starts paused](../guides/backup.md#a-restored-copy-starts-paused).',
  },
  unavailable: {
    status: '503',
    when: 'The database cannot be reached, or the server is stopping.',
    action: 'Repeat the request after `Retry-After`.',
  },
  internal: {
    status: '500',
    when: 'An unexpected failure.',
    action: 'Report the `requestId` to the operator, who finds it in the log.',
  },
} as const satisfies Partial<Record<ErrorCode, ErrorHelp>>

/** Describes the codes of failed runs. */
export const RUN_ERRORS = {
  provider_error: {
    when: "The model's provider refused, failed after all retries, or broke off its answer.",
    action:
      "Read `detail`: it has the provider's status and reason. For a wrong key or an empty account, ask an admin. For an overload, run again or name `fallbackModels`.",
  },
  model_not_available: {
    when: 'The model does not exist, or its provider has no key here.',
    action: 'Name a model of `GET /api/v1/models`, or [set up its provider](../guides/providers.md).',
  },
  context_too_long: {
    when: 'The prompt does not fit, even without earlier turns and with shorter tool results.',
    action: 'Send a shorter message, or use a model with a larger context window.',
  },
  content_filtered: {
    when: 'The provider blocked the prompt or the whole answer.',
    action: 'Change the message, or use another provider.',
  },
  mcp_unreachable: {
    when: 'An MCP server cannot be used. Listing its tools answers 502. A run fails only if its agent has `requireTools`.',
    action: 'Read the cause in `detail`; see [MCP servers](../guides/mcp-servers.md).',
  },
  secret_not_allowed: {
    when: 'An MCP server needs a secret that may not be sent there. Listing its tools answers 502. A run warns instead.',
    action: 'Add the host of the server to the `hosts` of the secret; see [Secrets](../guides/secrets.md).',
  },
  invalid_output: {
    when: 'The answer does not fit the schema of `output`, also after one repair.',
    action: 'Read where it does not fit in `detail`. Simplify the schema, or use another model.',
  },
  timeout: {
    when: 'The run, or the silence of its model, was longer than its limit.',
    action: 'Raise the limit that `detail` names, or ask for less.',
  },
  too_large: {
    when: 'The live runs of the server held more text than `MAX_RUN_BYTES`, and this run had the most.',
    action: 'Ask for shorter answers. The operator can raise the setting, or give the server more memory.',
  },
  not_found: {
    when: 'The agent, or another part that `error` names, was deleted before the run began.',
    action: 'Run another agent.',
  },
  internal: {
    when: 'An unexpected failure.',
    action: 'Report the id of the run to the operator, who finds it in the log.',
  },
  interrupted: {
    when: 'The process ended, and the run could not resume without showing text twice.',
    action: 'Run again.',
  },
  cancelled: {
    when: 'A caller cancelled the run. A caller who waits for its answer gets 409.',
    action: 'Nothing.',
  },
} as const satisfies Partial<Record<ErrorCode, ErrorHelp>>

/** Lists codes that this version never sends. */
export const RESERVED_ERRORS = ['budget_exceeded', 'price_unknown'] as const satisfies ErrorCode[]
