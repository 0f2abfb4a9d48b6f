// The texts of the MCP servers, apart from those that other pages need.

export const mcps = {
  title: 'MCP servers',
  new: 'Add a server',
  emptyTitle: 'No MCP servers yet',
  emptyText: 'An MCP server gives tools to your agents: GitHub, a database, your own service.',
  type: 'Kind',
  custom: 'Custom',
  url: 'Address',
  transport: 'Transport',
  active: 'Active',
  inactive: 'Inactive',
  headers: 'Headers',
  headersHelp: 'One a line: Name: value. ${NAME} stands for a credential.',
  credentials: 'Credentials',
  credentialsHelp: 'One a line: NAME=value. Values are never shown again.',
  credentialsSet: (names: string) => `Set: ${names}`,
  test: 'Test the connection',
  testAll: 'Test all',
  tests: 'Testing…',
  unusable: 'Not usable',
  tested: (unusable: number) =>
    unusable === 0
      ? 'All of these servers can be used'
      : unusable === 1
        ? 'One server cannot be used'
        : `${unusable} servers cannot be used`,
  toolCount: (count: number) => (count === 1 ? '1 tool' : `${count} tools`),
  tools: 'Tools',
  toolsHelp: 'The server lists its tools when it is asked.',
  noTools: 'The server has no tools.',
  noSuchTool: 'The server lists no tool of this name.',
  permissions: 'Permission',
  default: 'All other tools',
  asDefault: 'As all others',
  created: 'Server added',
  deleteTitle: 'Delete this server?',
  deleteText: 'Agents lose its tools at once.',
  delete: 'Delete the server',
  used: (count: number) => (count === 1 ? 'used by 1 run' : `used by ${count} runs`),
  operator: 'Operator',
  operatorHelp: 'The operator declares this server. Only its permissions can be changed, to stricter ones.',
  operatorGone: 'The operator does not declare this server any more. It can be deleted.',
  badLine: (line: string) => `This line cannot be read: ${line}`,
  schema: 'Input',
  auth: 'Authentication',
  auths: {
    headers: 'Headers and credentials',
    oauth: 'Each person signs in (OAuth)',
    client_credentials: 'The server signs in (client credentials)',
    none: 'None',
  },
  clientId: 'Client id',
  clientIdHelp: 'Only if the service does not register clients itself.',
  clientSecret: 'Client secret',
  clientSecretSet: 'A secret is set. It is never shown again.',
  clientSecretHelp: 'It is never shown again.',
  scope: 'Scope',
  scopeHelp: 'Empty: the one that the server asks for.',

  /** The connection of a person to a server. */
  connection: {
    title: 'Your connection',
    disconnect: 'Disconnect',
    disconnected: 'Disconnected',
    states: { connected: 'Connected', expired: 'Expired', none: 'Not connected' },
    as: (name: string) => `as ${name}`,
    asYou: 'Agents that you run use your account.',
    help: {
      expired: 'The service does not accept your sign-in any more. Connect again to use its tools.',
      none: 'Sign in there, so that agents that you run can use its tools as you.',
    },
    first: 'Connect first: the service lists its tools to people who have signed in there.',
    problems: {
      expired: 'This sign-in has expired, or was already completed. Connect again.',
      other_user: 'This sign-in belongs to another session or person. Sign in as that person, or connect again.',
      moved: 'The address of the server has changed meanwhile. Connect again.',
      refused:
        'The service did not let you in, or its answer was not valid. Try again, or ask an admin to look in the log.',
      failed: 'Something went wrong here, and you are not connected. Try again.',
    } as Readonly<Record<string, string>>,
    /** By the codes of OAuth (RFC 6749, section 4.1.2.1 and 5.2; OpenID Connect Core, section 3.1.2.6). */
    refusals: {
      access_denied: 'The access was denied there. Connect again and allow it, or ask an admin of that service.',
      invalid_scope: 'The service does not grant the scope that was asked for. Correct the scope below.',
      invalid_client:
        'The service does not know this client, or refuses its secret. Connect again. If that fails, correct the client id and the secret below.',
      unauthorized_client:
        'The service does not let this client sign people in. An admin of that service has to allow it.',
      invalid_grant: 'The service refused its own code: it had expired, or the secret is wrong. Connect again.',
      consent_required: 'An admin of that service has to allow this connection first.',
      interaction_required:
        'The service asks for another step, such as a second factor. Sign in there, then connect again.',
      login_required: 'You are not signed in there. Sign in to that service, then connect again.',
      server_error: 'The service has failed. Try again in a few minutes.',
      temporarily_unavailable: 'The service is overloaded or down. Try again in a few minutes.',
      timeout: 'The service did not answer in time. Try again.',
    } as Readonly<Record<string, string>>,
    refusedWith: (code: string) =>
      `The service answered “${code}”, and you are not connected. Try again, or ask an admin of that service.`,
  },
} as const
