import { describe, expect, test } from 'vitest'
import { warningsOf } from '../src/greeting.ts'
import { SETTINGS } from '../src/settings.ts'

/** Warnings of the start, beside invalid settings, which stop it. */
describe('the start', () => {
  test.each([
    ['OPENAI_KEY', 'OPENAI_API_KEY'],
    ['OPENAI_APIKEY', 'OPENAI_API_KEY'],
    ['ANTHROPIC_KEY', 'ANTHROPIC_API_KEY'],
    ['GOOGLE_API_KEY', 'GOOGLE_GENERATIVE_AI_API_KEY'],
    ['GEMINI_API_KEY', 'GOOGLE_GENERATIVE_AI_API_KEY'],
    ['OPENAI_API_BASE', 'OPENAI_BASE_URL'],
    ['CORS_ORIGIN', 'CORS_ORIGINS'],
    ['DATABSE_URL', 'DATABASE_URL'],
    ['DEFAULT_MODLE', 'DEFAULT_MODEL'],
  ])('warns of %s, a misspelt %s, without its value', (name, meant) => {
    expect(warningsOf({}, [], { [name]: 'secret' })).toEqual([`${name} is no setting. Did you mean ${meant}?`])
    expect(warningsOf({}, [], { [name]: 'secret', [meant]: 'set' })).toEqual([])
    expect(warningsOf({}, [], { [name]: ' ' })).toEqual([])
  })

  test('warns of a default model whose provider has no key', () => {
    const warned = warningsOf({ DEFAULT_MODEL: 'anthropic/claude-sonnet-5-5' }, ['openai', 'offline'], {})
    expect(warned).toEqual([expect.stringMatching(/anthropic has no key: set ANTHROPIC_API_KEY/)])
    expect(warningsOf({ DEFAULT_MODEL: 'claude-sonnet-5-5' }, ['openai'], {})).toHaveLength(1)
    expect(warningsOf({ DEFAULT_MODEL: 'anthropic/claude-sonnet-5-5' }, ['anthropic'], {})).toEqual([])
    expect(warningsOf({ DEFAULT_MODEL: 'groq/llama' }, ['groq'], {})).toEqual([])
  })

  test('warns of arguments, without their values', () => {
    expect(warningsOf({}, [], {}, ['--openai-api-key', 'sk-secret'])).toEqual([
      'Arguments have no effect. Set variables of the environment, such as PORT=4000',
    ])
  })

  test('ignores variables of other programs', () => {
    const env = {
      PATH: '/bin',
      HOME: '/',
      USER: 'x',
      LANG: 'C',
      SHELL: 'sh',
      TERM: 'xterm',
      EDITOR: 'vi',
      PWD: '/',
      CI: '1',
      NODE_OPTIONS: 'x',
      npm_config_cache: 'x',
      AWS_REGION: 'x',
      GITHUB_TOKEN: 'x',
      OPENAI_ORG_ID: 'x',
      HOSTNAME: 'h',
      MAIL: 'x',
      LOGNAME: 'x',
      SSH_AUTH_SOCK: 'x',
      POSTGRES_PASSWORD: 'x',
      DISPLAY: ':0',
      XDG_DATA_DIRS: 'x',
    }
    expect(warningsOf({}, [], env)).toEqual([])
    expect(warningsOf({}, [], Object.fromEntries(SETTINGS.map((name) => [name, 'x'])))).toEqual([])
  })
})
