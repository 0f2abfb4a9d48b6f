type Item = { text: string; link: string }

const item = (text: string, link: string): Item => ({ text, link })

/** Lists all pages of the site in their order, by their path without `.md`. */
export const SIDEBAR: { text: string; collapsed?: boolean; items: Item[] }[] = [
  { text: 'Start', items: [item('Quick start', '/quick-start'), item('Glossary', '/glossary')] },
  {
    text: 'Concepts',
    items: [
      item('Overview', '/concepts/'),
      item('Agent', '/concepts/agent'),
      item('Execution', '/concepts/execution'),
      item('Session', '/concepts/session'),
      item('Chat', '/concepts/chat'),
      item('Space', '/concepts/space'),
      item('Task', '/concepts/task'),
      item('Mission', '/concepts/mission'),
      item('Skill', '/concepts/skill'),
      item('Tool', '/concepts/tool'),
      item('Approval', '/concepts/approval'),
    ],
  },
  {
    text: 'Guides: build',
    items: [
      item('Console', '/guides/console'),
      item('Front end with login', '/guides/front-end'),
      item('Python and curl', '/guides/python-and-curl'),
      item('Typed client', '/guides/typed-client'),
      item('GraphQL dashboards', '/guides/graphql'),
      item('Chats and branches', '/guides/chats'),
      item('Background work', '/guides/background-work'),
      item('Tools and approvals', '/guides/tools-and-approvals'),
      item('MCP servers', '/guides/mcp-servers'),
      item('Delegation', '/guides/delegation'),
      item('Missions at night', '/guides/missions'),
      item('Models and retries', '/guides/models'),
      item('Structured output', '/guides/structured-output'),
      item('Attachments', '/guides/attachments'),
      item('Clients of the hosted original', '/guides/hosted-client'),
    ],
  },
  {
    text: 'Guides: operate',
    items: [
      item('Operating', '/guides/operating'),
      item('Signing in', '/guides/sign-in'),
      item('Members and organizations', '/guides/organizations'),
      item('Model providers', '/guides/providers'),
      item('Moving to PostgreSQL', '/guides/postgresql'),
      item('Behind a proxy', '/guides/proxies'),
      item('Backup and restore', '/guides/backup'),
      item('Monitoring', '/guides/monitoring'),
    ],
  },
  {
    text: 'Reference',
    items: [
      item('Settings', '/reference/settings'),
      item('Command line', '/reference/cli'),
      item('REST routes', '/reference/rest'),
      item('HTTP rules', '/reference/http'),
      item('Error codes', '/reference/errors'),
      item('Events', '/reference/events'),
      item('Scopes', '/reference/scopes'),
      item('Limits', '/reference/limits'),
    ],
  },
  {
    text: 'Architecture',
    items: [
      item('Overview', '/architecture/'),
      item("A run's life", '/architecture/run'),
      item('Databases', '/architecture/databases'),
      item('Many servers', '/architecture/many-servers'),
      item('GraphQL', '/architecture/graphql'),
      item('Three walks through the code', '/architecture/walks'),
    ],
  },
  {
    text: 'Contributing',
    items: [
      item('Style', '/contributing/'),
      item('What to run', '/contributing/what-to-run'),
      item('Debugging', '/contributing/debugging'),
      item('Adding a resource', '/contributing/adding-a-resource'),
      item('Migrations', '/contributing/migrations'),
    ],
  },
  {
    text: 'Decisions',
    collapsed: true,
    items: [
      item('All decisions', '/adr/README'),
      item('1 Prisma with a fast path', '/adr/0001-prisma-with-a-fast-path'),
      item('2 Group commit on SQLite', '/adr/0002-group-commit-on-sqlite'),
      item('3 Totals kept by triggers', '/adr/0003-totals-kept-by-triggers'),
      item('4 Own stream reader', '/adr/0004-own-reader-of-chat-completions'),
      item('5 One order of locks', '/adr/0005-lock-order'),
      item('6 Numbers of events', '/adr/0006-numbers-of-events'),
      item('7 Leases and a fence', '/adr/0007-leases-and-a-fence'),
      item('8 Steps before tools', '/adr/0008-steps-are-stored-before-tools-run'),
      item('9 Two filters per resource', '/adr/0009-two-filters-per-resource'),
      item('10 One definition', '/adr/0010-one-definition-for-three-apis'),
      item('11 No deletion by absence', '/adr/0011-nothing-is-deleted-by-absence'),
    ],
  },
  {
    text: 'Specification',
    collapsed: true,
    items: [
      item('Service', '/spec/service'),
      item('Contract', '/spec/contract'),
      item('Second contract', '/spec/contract-2'),
      item('Protocols', '/spec/protocols'),
    ],
  },
]
