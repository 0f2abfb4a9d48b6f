import { describeMisspelt } from './lib/misspelt.ts'
import { readModelName } from './lib/model-name.ts'
import { hostsOf } from './lib/postgres-url.ts'
import { SETTINGS, type Settings } from './settings.ts'
import type { Service } from './start.ts'

/** Settings that enable the built-in providers. */
const KEYS: Readonly<Record<string, string>> = {
  anthropic: 'ANTHROPIC_API_KEY',
  openai: 'OPENAI_API_KEY',
  google: 'GOOGLE_GENERATIVE_AI_API_KEY',
  compatible: 'OPENAI_BASE_URL',
}

/** Describes the default model and its provider. */
async function describeModel({ deps: { models } }: Service): Promise<string> {
  const name = await models.nameOf(null, '')
  const [provider = '', ...id] = name.split('/')
  if (provider === 'offline') {
    const others = models.ofServer().some((other) => other !== 'offline')
    return others
      ? name
      : `${name}   no provider: set ${Object.values(KEYS).slice(0, -1).join(', ')} or ${KEYS.compatible}`
  }
  if (id.join('/') === 'default') return `the first that ${provider} lists   provider: ${provider}`
  return id.length ? `${name}   provider: ${provider}` : name
}

/** Returns warnings about probable mistakes in the settings, one sentence each, without their values. */
export function warningsOf(
  { DEFAULT_MODEL }: Pick<Settings, 'DEFAULT_MODEL'>,
  configured: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  args: readonly string[] = [],
): string[] {
  const warnings = describeMisspelt(env, SETTINGS)
  // Their values may be secrets.
  if (args.length) warnings.push('Arguments have no effect. Set variables of the environment, such as PORT=4000')
  const chosen =
    DEFAULT_MODEL && readModelName(DEFAULT_MODEL, (provider) => provider in KEYS || configured.includes(provider))
  if (chosen && !configured.includes(chosen.provider)) {
    const key = KEYS[chosen.provider]
    warnings.push(
      `DEFAULT_MODEL is ${DEFAULT_MODEL}, and the provider ${chosen.provider} has no key: set ${key}, or runs of it fail`,
    )
  }
  return warnings
}

/** Prints the address of the service, its configuration, and the first token if this start created it. */
export async function greet(service: Service, settings: Settings): Promise<void> {
  const { url, firstToken, firstLink, newInstallation, deps } = service
  const { DATABASE_URL, DATA_DIR, ROLE } = settings
  const apis = [
    `  Console   ${url}/app`,
    `  REST      ${url}/api/v1      reference: ${url}/api/docs`,
    `  GraphQL   ${url}/graphql`,
    `  tRPC      ${url}/trpc`,
  ]
  const lines = [
    '',
    `  Muster is ready at ${url}`,
    '',
    ...(ROLE === 'worker' ? [] : apis),
    `  Model     ${await describeModel(service)}`,
    `  Data      ${DATABASE_URL?.startsWith('postgres') ? hostsOf(DATABASE_URL) : (DATABASE_URL ?? DATA_DIR)}`,
    '',
    ...warningsOf(settings, deps.models.ofServer(), process.env, process.argv.slice(2)).flatMap((warning) => [
      `  Warning: ${warning}`,
      '',
    ]),
  ]
  if (newInstallation) lines.push(`  A new installation was made in ${newInstallation}`, '')
  if (firstToken) {
    lines.push(
      '  Your first token. It is shown only once:',
      '',
      `  ${firstToken}`,
      '',
      '  Try it:',
      '',
      `  curl ${url}/api/v1/agents -H 'Authorization: Bearer ${firstToken}' \\`,
      `    -H 'Content-Type: application/json' -d '{"name": "Ada", "systemPrompt": "You are a helpful assistant."}'`,
      '',
    )
  }
  if (firstLink && ROLE !== 'worker') {
    lines.push(
      '  Sign in with a browser. The link works once, for 15 minutes:',
      '',
      `  ${url}/app/welcome#${firstLink}`,
      '',
    )
  }
  console.log(lines.join('\n'))
}
