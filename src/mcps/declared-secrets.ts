import type { DeclaredServer } from '../lib/mcp-config.ts'
import { percentDecoded } from '../lib/text.ts'

/** Names of values that are secret whatever they look like. */
const SECRET_NAME = /key|token|secret|pass|pwd|auth|credential|cookie|session|dsn|private|signature/i

/** Values that are no secrets, and stand in many texts: paths, the origin of an address, words and numbers. */
const HARMLESS = [
  /^(?:\/[\w.@-]*)+(?::(?:\/[\w.@-]*)+)*$/,
  /^https?:\/\/[\w.-]+(?::\d+)?\/?$/,
  /^[a-z]+(?:[-_.][a-z]+)*$/i,
  /^[\d.]+$/,
]

const isSecret = (name: string, value: string) =>
  SECRET_NAME.test(name) || !HARMLESS.some((pattern) => pattern.test(value))

/** Arguments such as `--api-key=…`, or `--api-key` before the value. */
const ASSIGNMENT = /^-{0,2}([\w-]+)=(.+)$/s

function inArguments(args: readonly string[]): string[] {
  return args.flatMap((argument, index) => {
    const [, name, value] = ASSIGNMENT.exec(argument) ?? []
    if (name && value && SECRET_NAME.test(name)) return value
    const before = args[index - 1] ?? ''
    return before.startsWith('-') && !before.includes('=') && SECRET_NAME.test(before) ? argument : []
  })
}

/** Minimum length of a part of a path that may be a secret. */
const MIN_PART = 16

function inAddress(url: string): string[] {
  const { pathname, searchParams, search } = new URL(url)
  const parts = pathname.split('/').filter(({ length }) => length >= MIN_PART)
  return [...parts, ...parts.map(percentDecoded), ...searchParams.values(), search.slice(1)]
}

/**
 * Returns the secrets of a declared server, which are removed from all of its texts. These are values of its
 * environment that do not look harmless, arguments with the name of a secret, headers, and parts of its address. A
 * secret of several lines is found by each of them.
 */
export function secretsOf(server: DeclaredServer): string[] {
  if (server.kind === 'address') {
    const headers = Object.values(server.headers)
    return [...headers, ...headers.flatMap((value) => value.split(/\s+/).slice(1)), ...inAddress(server.url)].filter(
      Boolean,
    )
  }
  const values = Object.entries(server.env).flatMap(([name, value]) => (isSecret(name, value) ? value : []))
  return [...values, ...inArguments(server.args)].flatMap((value) => value.split(/\r?\n/)).filter(Boolean)
}
