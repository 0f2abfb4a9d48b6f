import { describe, expect, it } from 'vitest'
import { readSettings } from '../src/settings.ts'

const TIMERS = [
  ...['EXECUTION_TIMEOUT', 'MODEL_IDLE_TIMEOUT', 'TOOL_TIMEOUT', 'LEASE_DURATION', 'SHUTDOWN_DELAY', 'DRAIN_TIMEOUT'],
] as const

describe('a setting', () => {
  it.each(TIMERS)('a setting of a timer is at most the longest possible timer: %s', (name) => {
    expect(readSettings({ [name]: '2147483' })).toMatchObject({ [name]: 2_147_483_000 })
    expect(() => readSettings({ [name]: '2592000' })).toThrow(`  ${name}: must be at most 2147483 seconds`)
  })

  it.each(['APPROVAL_TIMEOUT', 'QUEUE_TIMEOUT'])(
    'a setting of a date may lie far ahead within representable dates: %s',
    (name) => {
      expect(readSettings({ [name]: '2592000' })).toMatchObject({ [name]: 2_592_000_000 })
      expect(() => readSettings({ [name]: '1e12' })).toThrow(`  ${name}: must be at most 3153600000 seconds`)
    },
  )

  it.each([
    ['MAX_RUNNING', '3000000000'],
    ['MAX_RUNNING_PER_ORGANIZATION', '3000000000'],
    ['MAX_PENDING_RUNS', '3000000000'],
    ['EVENT_RETENTION_DAYS', '1e9'],
    ['AUDIT_RETENTION_DAYS', '1e9'],
  ])('a setting of a number is at most the largest number of the databases: %s', (name, value) => {
    expect(() => readSettings({ [name]: value })).toThrow(`  ${name}: `)
  })

  it('a setting with a value below its limit is refused with that limit', () => {
    const message = 'Invalid configuration:\n  DRAIN_TIMEOUT: Expected more than 0'
    expect(() => readSettings({ DRAIN_TIMEOUT: '0' })).toThrow(message)
  })

  it('a setting of an address without its scheme is refused with what is missing', () => {
    const message = 'OPENAI_BASE_URL: must be an address that begins with https:// or http://'
    expect(() => readSettings({ OPENAI_BASE_URL: 'localhost:11434/v1' })).toThrow(message)
    expect(() => readSettings({ OPENAI_BASE_URL: 'models.example.com/v1' })).toThrow(message)
  })

  it.each(['warn\r', ' warn', '"warn"', "'warn'\r"])('loses blanks and quotes around it: %j', (value) => {
    const settings = readSettings({ LOG_LEVEL: value, MAIL_FROM: '""', DATA_DIR: '"a b' })
    expect([settings.LOG_LEVEL, settings.MAIL_FROM, settings.DATA_DIR]).toEqual(['warn', undefined, '"a b'])
  })

  it('a setting of words is read in any case', () => {
    const settings = readSettings({ LOG_LEVEL: 'WARN', ALLOW_PRIVATE_NETWORK: 'True' })
    expect([settings.LOG_LEVEL, settings.ALLOW_PRIVATE_NETWORK]).toEqual(['warn', true])
    expect(() => readSettings({ LOG_LEVEL: 'verbose' })).toThrow('LOG_LEVEL: Expected one of: trace, debug')
    expect(() => readSettings({ TOOL_TIMEOUT: '2m' })).toThrow('TOOL_TIMEOUT: must be a number of seconds')
  })

  it.each([
    [{ MEDIA_QUOTA: '10GB' }, 'MEDIA_QUOTA: must be a number of bytes'],
    [{ EVENT_RETENTION_DAYS: '90d' }, 'EVENT_RETENTION_DAYS: must be a number of days'],
    [{ OPENAI_HEADERS: 'null' }, 'OPENAI_HEADERS: must be JSON, such as {"api-key": "…"}'],
    [{ OPENAI_HEADERS: '["a"]' }, 'OPENAI_HEADERS: must be JSON, such as {"api-key": "…"}'],
    [{ COMPATIBLE_PROVIDERS: '{"name": "a"}' }, 'COMPATIBLE_PROVIDERS: must be JSON, such as [{"name": "groq"'],
  ])('a setting of another type is refused with the type that it has: %j', (env, message) => {
    expect(() => readSettings(env)).toThrow(`  ${message}`)
  })

  it.each(['~/muster', '~', '$HOME/muster', '$DATA/muster'])(
    'a setting of a path that only a shell would complete is refused: %s',
    (path) => {
      expect(() => readSettings({ DATA_DIR: path })).toThrow('  DATA_DIR: must be the whole path')
      expect(() => readSettings({ MEDIA_DIR: path })).toThrow('  MEDIA_DIR: must be the whole path')
      expect(() => readSettings({ DATABASE_URL: `file:${path}` })).toThrow('  DATABASE_URL: must have the whole path')
      expect(readSettings({ DATA_DIR: `./${path}` }).DATA_DIR).toBe(`./${path}`)
    },
  )

  it('a setting of a duration is in whole milliseconds', () => {
    expect(readSettings({ TOOL_TIMEOUT: '2.01', APPROVAL_TIMEOUT: '1.0005', DRAIN_TIMEOUT: '0.00001' })).toMatchObject({
      TOOL_TIMEOUT: 2_010,
      APPROVAL_TIMEOUT: 1_001,
      DRAIN_TIMEOUT: 1,
    })
  })

  it.each([
    [{ OIDC_ISSUER: 'https://a.b' }, 'OIDC_AUDIENCE: or OIDC_CLIENT_ID is required'],
    [{ OIDC_CLIENT_ID: 'x' }, 'OIDC_ISSUER: is required with OIDC_CLIENT_ID'],
    [{ OIDC_ALLOWED_DOMAINS: 'a.b' }, 'OIDC_CLIENT_ID: is required with'],
    [{ OIDC_ALLOWED_DOMAINS: '@a.b' }, 'OIDC_ALLOWED_DOMAINS: must be domains'],
    [{ OIDC_ALLOWED_DOMAINS: '*.a.b' }, 'OIDC_ALLOWED_DOMAINS: must be domains'],
    [{ OIDC_ROLE_CLAIM: 'groups' }, 'OIDC_ROLE_CLAIM: and OIDC_ROLE_MAP belong together'],
    [{ OIDC_ROLE_MAP: '{"a": "owner"}' }, 'OIDC_ROLE_MAP.a: Expected one of: admin, member'],
    [{ OIDC_ROLE_MAP: 'admins=admin' }, 'OIDC_ROLE_MAP: must be JSON, such as {"muster-admins": "admin"}'],
    [{ OIDC_SCOPES: 'email' }, 'OIDC_SCOPES: must include openid'],
  ])('sign-in with a provider that cannot work is refused at the start: %j', (env, message) => {
    expect(() => readSettings(env)).toThrow(message)
  })

  it('a setting that is invalid does not hide combinations of others that cannot work', () => {
    const env = { ROLE: 'worker', S3_ACCESS_KEY_ID: 'a', OIDC_CLIENT_ID: 'x', SEARCH_PROVIDER: 'brave', PORT: 'many' }
    const message = `Invalid configuration:
  PORT: Expected number
  ROLE: must be all with SQLite, which only one server can use
  SEARCH_API_KEY: is required with SEARCH_PROVIDER=brave and tavily
  S3_ACCESS_KEY_ID: and S3_SECRET_ACCESS_KEY belong together
  OIDC_ISSUER: is required with OIDC_CLIENT_ID`
    expect(() => readSettings(env)).toThrow(message)
  })

  it('a setting that is invalid is not judged together with others', () => {
    const env = { ROLE: 'api', DATABASE_URL: 'mysql://db/muster', COMPATIBLE_PROVIDERS: '[]]', DEFAULT_MODEL: 'a/b' }
    const read = () => readSettings(env)
    expect(read).toThrow('  DATABASE_URL: must begin with')
    expect(read).not.toThrow(/ROLE|DEFAULT_MODEL/)
  })

  it('sign-in with a provider needs no audience of ID tokens', () => {
    const env = { OIDC_ISSUER: 'https://a.b', OIDC_CLIENT_ID: 'x', OIDC_ALLOWED_DOMAINS: 'A.example,b.example' }
    expect(readSettings(env).OIDC_ALLOWED_DOMAINS).toEqual(['a.example', 'b.example'])
  })

  it.each(['', ' ', ' \t'])('a setting that is empty or blank counts as absent: %j', (blank) => {
    const names = ['PORT', 'MEDIA_QUOTA', 'SHUTDOWN_DELAY', 'MAX_PENDING_RUNS', 'PUBLIC_URL', 'NODE_ENV']
    expect(readSettings(Object.fromEntries(names.map((name) => [name, blank])))).toEqual(readSettings({}))
  })

  it.each(['https://a.b/', 'https://a.b/c', 'foo bar', 'a.b', 'https://A.b', 'https://a.b:443', 'https://x, null'])(
    'a setting of an origin that no browser would send is refused: %s',
    (origins) => {
      expect(() => readSettings({ CORS_ORIGINS: origins })).toThrow('  CORS_ORIGINS: must be *, or origins')
    },
  )

  it.each([
    '*',
    'https://a.b',
    'http://localhost:5173, https://xn--bcher-kva.de',
    'http://[::1]:1',
    'capacitor://localhost',
  ])('a setting of an origin as browsers send it is accepted: %s', (origins) => {
    expect(readSettings({ CORS_ORIGINS: origins }).CORS_ORIGINS).toEqual(origins.split(', '))
  })

  it.each(['https://a.b/?q', 'https://a.b/?q#f', 'https://a.b/#f', 'https://a.b?'])(
    'a setting of the public address is one that paths can be appended to: %s',
    (url) => {
      expect(() => readSettings({ PUBLIC_URL: url })).toThrow('  PUBLIC_URL: must end before any ? or #')
    },
  )

  it.each([
    ['postgresql://ada:sesame@localhost/muster?schema=foo', 'must not name a schema'],
    ['postgresql://ada:ses#ame@localhost/muster', 'is no address'],
    ['file://sesame/muster.db', 'is no address'],
    ['file:./sesame.db?connection_limit=1', 'must end before any ?'],
    ['file:///sesame.db?mode=ro', 'must end before any ?'],
    ['file:///sesame#1/muster.db', 'must end before any ?'],
    ['mysql://ada:sesame@localhost/muster', 'must begin with file: or postgresql://'],
  ])('a setting of an invalid database address is refused without showing it: %s', (url, message) => {
    const read = () => readSettings({ DATABASE_URL: url, ENCRYPTION_KEY: Buffer.alloc(32).toString('base64') })
    expect(read).toThrow(`  DATABASE_URL: ${message}`)
    expect(read).not.toThrow(/ses/)
  })

  it.each([
    'smtps://ada:12#4@mail.example.com',
    'smtp://ada:1/2@mail.example.com',
    'smtp://ada:pa?ss@mail.example.com',
  ])('a mail server with an unescaped password, which names another host, is refused: %s', (url) => {
    expect(() => readSettings({ SMTP_URL: url })).toThrow('in the password as %23 %2F %3F')
  })

  it('a setting of a mail server may have an address as its user', () => {
    const url = 'smtp://ada@example.com:12%234@mail.example.com:587/?tls.rejectUnauthorized=false'
    expect(readSettings({ SMTP_URL: url }).SMTP_URL).toBe(url)
  })

  it('a setting of a database address may name the schema of the tables', () => {
    const url = 'postgresql://ada@localhost/muster?schema=public'
    const ENCRYPTION_KEY = Buffer.alloc(32).toString('base64')
    expect(readSettings({ DATABASE_URL: url, ENCRYPTION_KEY }).DATABASE_URL).toBe(url)
  })

  it.each(['nope', 'nope/x', 'anthropic/', '/', 'offline/other', 'google/../x'])(
    'a setting of a default model without a provider is refused without showing it: %s',
    (name) => {
      const read = () => readSettings({ DEFAULT_MODEL: name, ANTHROPIC_API_KEY: 'a' })
      expect(read).toThrow(
        / {2}DEFAULT_MODEL: must name a model and its provider, such as anthropic\/claude-sonnet-5-5$/,
      )
    },
  )

  it.each([
    [{ DEFAULT_MODEL: 'claude-x' }],
    [{ DEFAULT_MODEL: 'compatible/x' }],
    [{ DEFAULT_MODEL: 'openai/x', ANTHROPIC_API_KEY: 'a' }],
    [{ DEFAULT_MODEL: 'nope', OPENAI_BASE_URL: 'http://localhost/v1' }],
  ])('a setting of a default model may be one without a key: %j', (env) => {
    expect(readSettings(env)).toMatchObject(env)
  })

  it.each([
    ['OPENAI_HEADERS', 'x', 'must be JSON, such as {"api-key": "…"}'],
    ['ANTHROPIC_HEADERS', '{"Host": "sesame"}', 'must be the name of a header that is not set by itself'],
    ['OPENAI_HEADERS', '{"X Team": "sesame"}', 'must be the name of a header that is not set by itself'],
    ['OPENAI_HEADERS', '{"x-team": "ses\\name"}', 'must be one line of Latin-1 characters'],
    ['OPENAI_API_KEY', 'ses ame', 'must not contain blanks, line breaks or characters beyond ASCII'],
    ['ANTHROPIC_API_KEY', 'sésame', 'must not contain blanks, line breaks or characters beyond ASCII'],
    ['GOOGLE_BASE_URL', 'https://ada:sesame@a.example', 'must not hold a user or password'],
    ['OPENAI_RESPONSES_BASE_URL', 'sesame', ''],
    ['HTTPS_PROXY', 'socks5://ada:sesame@a.example', 'must be the address of an HTTP proxy, such as http'],
    ['COMPATIBLE_PROVIDERS', 'groq', 'must be JSON, such as ['],
    ['COMPATIBLE_PROVIDERS', '{"name": "groq"}', ''],
    ['COMPATIBLE_PROVIDERS', '[{"name": "groq"}]', ''],
    ['COMPATIBLE_PROVIDERS', '[{"name": "Groq", "baseUrl": "https://a.example"}]', 'must be 1 to 40 of a-z'],
    ['COMPATIBLE_PROVIDERS', '[{"name": "openai", "baseUrl": "https://a.example"}]', 'is a built-in provider'],
    ['COMPATIBLE_PROVIDERS', '[{"name": "offline", "baseUrl": "https://a.example"}]', 'is a built-in provider'],
    ['COMPATIBLE_PROVIDERS', '[{"name": "a", "baseUrl": "https://a.example", "key": "x"}]', 'has unknown fields: key'],
    [
      'COMPATIBLE_PROVIDERS',
      '[{"name": "a", "baseUrl": "https://a.example"}, {"name": "a", "baseUrl": "https://b.example"}]',
      'must have different names',
    ],
  ])(
    'a setting of a provider or proxy is refused with its name and reason, and hidden: %s=%s',
    (name, value, message) => {
      const read = () => readSettings({ [name]: value })
      expect(read).toThrow(new RegExp(`^ {2}${name}\\b.*${RegExp.escape(message)}`, 'm'))
      expect(read).not.toThrow(/s[eé]s ?ame|ses$/m)
    },
  )

  it('a setting for the command line alone stops no server', () => {
    expect(() => readSettings({ NEW_ENCRYPTION_KEY: 'zz' })).not.toThrow()
    expect(() => readSettings({ ENCRYPTION_KEY: 'zz' })).toThrow('  ENCRYPTION_KEY: must be 32 bytes in base64')
  })
})
