import type { Settings } from '../../src/settings.ts'

type SettingHelp = {
  text: string
  /** The default if the schema has none to print. */
  fallback?: string
}

/** Describes every setting, in the order of the reference page. */
export const SETTINGS_HELP: Record<string, Partial<Record<keyof Settings, SettingHelp>>> = {
  Server: {
    HOST: { text: 'Address to listen on. `0.0.0.0` accepts other machines: put a proxy that speaks HTTPS before it.' },
    PORT: { text: 'Port to listen on. `0` takes a free one.' },
    PUBLIC_URL: {
      text: 'Address that clients use. Links, the greeting and the OpenAPI document contain it.',
      fallback: '`http://localhost:` and the port',
    },
    ALLOWED_HOSTS: {
      text: 'Accepted `Host` names, separated by commas, or `*`. The server answers 421 to others. Health checks and metrics accept every host.',
      fallback:
        'loopback, IP addresses, the host of `PUBLIC_URL`; all hosts without `PUBLIC_URL` if `HOST` is not loopback',
    },
    CORS_ORIGINS: {
      text: 'Origins whose pages may call the APIs, separated by commas (`https://app.example.com`), or `*`.',
      fallback: 'none',
    },
    TRUST_PROXY: {
      text: 'Trust `X-Forwarded-For` from a reverse proxy: the client address in logs, in audit events and in the limits of sign-ins.',
    },
    PUBLIC_DIRECTORY: {
      text: 'Answer `GET /api/public/agents` without a token. The list has the public agents of all organizations, without their prompts.',
    },
    RATE_LIMIT: {
      text: 'Maximum number of requests of one key or browser session, as `<requests>/<seconds>` (`600/60`).',
      fallback: 'none',
    },
    EXECUTE_RATE_LIMIT: {
      text: 'Maximum number of runs that one key or browser session may start, as `<runs>/<seconds>`.',
      fallback: 'none',
    },
    SMTP_URL: {
      text: 'Mail server for invitations and links (`smtps://user:password@mail.example.com`). Without it, people hand links over.',
      fallback: 'none',
    },
    MAIL_FROM: {
      text: 'Sender of mails.',
      fallback: '`no-reply@` the host of `PUBLIC_URL`',
    },
    ALLOW_NEW_ORGANIZATIONS: {
      text: 'Let users create organizations with `POST /api/v1/organizations`. Otherwise only the operator creates them.',
    },
    NODE_ENV: { text: '`production` turns GraphiQL off.' },
    LOG_LEVEL: {
      text: '`trace`, `debug`, `info`, `warn`, `error`, `fatal` or `silent`. Logs are JSON lines on stdout.',
    },
  },
  Process: {
    ROLE: {
      text: 'With PostgreSQL: `api` accepts runs and serves clients; `worker` runs agents, fires missions and serves health checks only.',
    },
    PAUSED: { text: 'Serve requests, but start no run, fire no mission and send nothing outside.' },
    LEASE_DURATION: {
      text: 'Lease duration (seconds). If a server has not renewed its leases for this long, others take over its runs. Servers on one database need the same value.',
    },
    SHUTDOWN_DELAY: {
      text: 'Time between SIGTERM and the refusal of new work (seconds). `/readyz` fails meanwhile. Behind a proxy, set it above the time in which the proxy notices.',
    },
    DRAIN_TIMEOUT: {
      text: 'Maximum time that live runs have to end after that (seconds). Other servers resume the rest.',
    },
    MAX_RUNNING: { text: 'Maximum number of concurrent runs in one process. More wait.' },
    MAX_RUNNING_PER_ORGANIZATION: {
      text: 'Maximum number of concurrent runs of one organization. More wait.',
      fallback: 'none',
    },
    MAX_PENDING_RUNS: {
      text: 'Maximum number of waiting runs of one organization. The server answers 429 beyond it.',
      fallback: 'none',
    },
    MAX_RUN_BYTES: {
      text: 'Maximum size of all texts of the live runs of a process (bytes). Beyond it, the largest run fails with the code `too_large`.',
      fallback: '512 MiB; less in a container: a 32nd of its memory, at least 8 MiB',
    },
    MAX_UNSENT_BYTES: {
      text: "Maximum size of responses that an organization's clients have not read (bytes). A token may use a quarter of it. Beyond it, the server ends the response that has been idle longest.",
    },
  },
  Database: {
    DATA_DIR: { text: 'Folder of the SQLite file and of the key file.' },
    DATABASE_URL: {
      text: '`file:…` for SQLite, `postgresql://…` for PostgreSQL. Tables are in the schema `public` of a database in UTF8. It may list several hosts (`postgresql://…@a:5432,b:5432/muster`), of which the one that accepts writes is used; see [Failover](../guides/postgresql.md#failover).',
      fallback: 'a file in `DATA_DIR`',
    },
    DATABASE_POOL_SIZE: {
      text: 'Maximum number of PostgreSQL connections of each server. One more listens for notices.',
    },
    DATABASE_DIRECT_URL: {
      text: 'Address of the same PostgreSQL without a pooler, for migrations and notices. The server then prepares no statements on `DATABASE_URL`.',
      fallback: '`DATABASE_URL`',
    },
    ALLOW_NEW_INSTALLATION: {
      text: 'Allow a new installation where a key, a log or media of another installation exist.',
    },
    EVENT_RETENTION_DAYS: {
      text: 'Retention of events (days). The server then deletes the events of a run; the run and its result stay.',
    },
    AUDIT_RETENTION_DAYS: { text: 'Retention of audit events (days).' },
  },
  'Keys and sign-in': {
    ENCRYPTION_KEY: {
      text: '32 bytes in base64 (`openssl rand -base64 32`). Required with PostgreSQL.',
      fallback: 'a key file in `DATA_DIR`',
    },
    NEW_ENCRYPTION_KEY: {
      text: 'Key that `npm run admin -- rotate-key` changes to. Servers do not read it.',
      fallback: 'none',
    },
    TOKEN_PREFIX: { text: 'Prefix of tokens, before the underscore. The server refuses tokens with another one.' },
    BOOTSTRAP_TOKEN: {
      text: 'Token that the first start uses instead of a random one, for automation. The greeting then prints no secret.',
      fallback: 'none',
    },
    OIDC_ISSUER: {
      text: 'Issuer of your identity provider: for ID tokens (with `OIDC_AUDIENCE`) and sign-in (with `OIDC_CLIENT_ID`).',
      fallback: 'none',
    },
    OIDC_AUDIENCE: {
      text: 'Client id of your front end at that issuer. Without it, no ID token is accepted as a credential.',
      fallback: 'none',
    },
    OIDC_CLIENT_IDS: {
      text: 'Further client ids of your apps, separated by commas: the `azp` of an ID token may be one of them.',
      fallback: 'none',
    },
    OIDC_JWKS_URL: { text: "Address of the issuer's keys.", fallback: 'found by discovery' },
    OIDC_CLIENT_ID: {
      text: 'Client id of Muster at that issuer. Turns on sign-in with the provider; its redirect address is `PUBLIC_URL/api/auth/oidc/callback`.',
      fallback: 'none',
    },
    OIDC_CLIENT_SECRET: { text: 'Client secret of Muster at that issuer.', fallback: 'none: a public client' },
    OIDC_NAME: { text: 'Name of the provider on the sign-in button.' },
    OIDC_SCOPES: { text: 'Scopes that sign-in asks for, with blanks between them. `openid` is required.' },
    OIDC_ORGANIZATION: {
      text: 'Slug of the organization that `OIDC_ALLOWED_DOMAINS` join, and in which `OIDC_ROLE_CLAIM` sets roles.',
      fallback: 'the first organization',
    },
    OIDC_ALLOWED_DOMAINS: {
      text: 'Domains of e-mail addresses, separated by commas, whose people join at their first sign-in with the provider.',
      fallback: 'none: only invited and added people sign in',
    },
    OIDC_ROLE_CLAIM: {
      text: 'Claim that sets the role at each sign-in: a text or a list, such as `groups` or `realm_access.roles`. Needs `OIDC_ROLE_MAP`.',
      fallback: 'none',
    },
    OIDC_ROLE_MAP: {
      text: 'JSON object from values of that claim to `admin` or `member`. The highest role wins; without a match it is `member`. Owners stay owners.',
      fallback: 'none',
    },
  },
  Network: {
    ALLOW_PRIVATE_NETWORK: {
      text: 'Allow addresses that users give (MCP servers, providers, repositories) to be on loopback or in a private network.',
    },
    HTTPS_PROXY: {
      text: 'Proxy for outgoing `https://` connections. The name may be in lower case, as for the next two.',
      fallback: 'none',
    },
    HTTP_PROXY: { text: 'Proxy for outgoing `http://` connections.', fallback: 'none' },
    NO_PROXY: { text: 'Hosts and networks to reach without a proxy, separated by commas.', fallback: 'none' },
    MCP_AUTHORIZATION_SERVER: {
      text: 'Issuer of access tokens (RFC 9068) for the MCP server at `/mcp`. Their audience is `PUBLIC_URL/mcp`, and their `scope` lists scopes of Muster. Needs `PUBLIC_URL`.',
      fallback: 'none: personal access tokens only',
    },
    MCP_CATALOGUE: {
      text: 'JSON file of further MCP servers by type: `{"types": [{"mcpType": "wiki", "name": "Wiki", "url": "https://wiki.example.com/mcp", "auth": "none"}]}`. `auth` is `none`, `bearer` or `oauth`.',
      fallback: 'none',
    },
    MCP_CONFIG: {
      text: 'JSON file of MCP servers that the operator declares, in the `mcpServers` form of desktop clients: programs (`command`, `args`, `env`) and addresses (`url`, `headers`), each with `organizations: [slug]`. See [declared MCP servers](../guides/declared-mcp-servers.md).',
      fallback: 'none',
    },
  },
  Models: {
    DEFAULT_MODEL: {
      text: 'Model of agents that name none.',
      fallback: 'the first model of the first provider',
    },
    ANTHROPIC_API_KEY: { text: 'Key of Anthropic.', fallback: 'none' },
    ANTHROPIC_BASE_URL: { text: "Address of a gateway that speaks Anthropic's API.", fallback: "Anthropic's" },
    ANTHROPIC_HEADERS: {
      text: 'Further headers as JSON: `{"cf-aig-authorization": "Bearer …"}`.',
      fallback: 'none',
    },
    OPENAI_API_KEY: { text: 'Key of OpenAI; with `OPENAI_BASE_URL`, key of that server.', fallback: 'none' },
    OPENAI_BASE_URL: {
      text: 'Base address of a server that speaks chat completions. Its models are `compatible/…`.',
      fallback: 'none',
    },
    OPENAI_RESPONSES_BASE_URL: {
      text: 'Base address of a server that speaks the Responses API, for `openai/…`. If `OPENAI_BASE_URL` is set too, both servers get `OPENAI_API_KEY` and `OPENAI_HEADERS`.',
      fallback: "OpenAI's",
    },
    OPENAI_HEADERS: {
      text: 'Further headers as JSON: `{"api-key": "…"}`. A header that carries a key (`Authorization`, `api-key`, `x-api-key`, `x-goog-api-key`) replaces the header of `OPENAI_API_KEY`.',
      fallback: 'none',
    },
    GOOGLE_GENERATIVE_AI_API_KEY: { text: 'Key of Google.', fallback: 'none' },
    GOOGLE_BASE_URL: { text: "Address of a gateway that speaks Gemini's API.", fallback: "Google's" },
    COMPATIBLE_PROVIDERS: {
      text: 'More OpenAI-compatible providers as JSON: `[{"name": "groq", "baseUrl": "https://api.groq.com/openai/v1", "apiKey": "…", "headers": {}}]`. Their models are `groq/…`.',
      fallback: 'none',
    },
    THINK_TAGS: {
      text: 'Treat `<think>…</think>` at the start of an answer of an OpenAI-compatible server as reasoning.',
    },
  },
  Runs: {
    MAX_HISTORY_TOKENS: {
      text: 'Maximum size of the earlier turns in a prompt (tokens, 4 bytes each). The latest turns come first; the maximum number of messages is 1,000.',
    },
    EXECUTION_TIMEOUT: {
      text: 'Maximum duration of a run (seconds). Time spent waiting for an approval does not count.',
    },
    MODEL_IDLE_TIMEOUT: { text: 'Maximum time for which a model may send nothing (seconds).' },
    MODEL_RETRIES: { text: 'Maximum number of retries of a model step after a temporary failure (0 to 10).' },
    TOOL_TIMEOUT: { text: 'Maximum duration of a tool call (seconds).' },
    APPROVAL_TIMEOUT: {
      text: 'Maximum time for which a tool call waits for a decision (seconds). The run then continues without the call.',
    },
    CLIENT_TOOL_TIMEOUT: {
      text: "Maximum time for which a run waits for its client to call the client's own tools (seconds). The run then fails.",
    },
    QUEUE_TIMEOUT: { text: 'Maximum time for which a run waits for capacity or for its session (seconds).' },
    SEARCH_PROVIDER: {
      text: 'Provider of the tool `web_search`: `brave`, `tavily` or `searxng`. Without it there is no such tool.',
      fallback: 'none',
    },
    SEARCH_API_KEY: { text: 'Key of the search provider. Required for `brave` and `tavily`.', fallback: 'none' },
    SEARCH_URL: {
      text: 'Address of the SearXNG server, with `json` in its `search.formats`; or of a gateway to another provider.',
      fallback: "the provider's",
    },
  },
  'Uploaded files': {
    MEDIA_DIR: {
      text: 'Folder of uploaded files. With PostgreSQL it is a folder that all servers share, or a bucket takes its place. Without either, uploads answer 503.',
      fallback: '`media` in `DATA_DIR`',
    },
    MEDIA_QUOTA: { text: 'Maximum size of the uploaded files of an organization (bytes).' },
    S3_BUCKET: { text: 'Bucket of uploaded files, instead of a folder.', fallback: 'none' },
    S3_REGION: { text: 'Region of the bucket.' },
    S3_ENDPOINT: { text: 'Endpoint of an S3-compatible service.', fallback: "Amazon's" },
    S3_ACCESS_KEY_ID: { text: 'Access key of the bucket.', fallback: 'as the AWS SDK finds it' },
    S3_SECRET_ACCESS_KEY: { text: 'Secret of that access key.', fallback: 'as the AWS SDK finds it' },
  },
  Telemetry: {
    METRICS_PORT: {
      text: 'Port of `/metrics` for Prometheus, on `HOST`. `/metrics` asks for no token.',
      fallback: 'none',
    },
    OTEL_EXPORTER_OTLP_ENDPOINT: {
      text: 'OpenTelemetry collector (OTLP over HTTP) that receives traces of runs.',
      fallback: 'none',
    },
    OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: {
      text: 'Put prompts, answers, and inputs and results of tools into the traces.',
    },
  },
}
