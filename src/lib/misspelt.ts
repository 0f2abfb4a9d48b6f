import { distanceOf } from './nearest.ts'

/** Minimum length of a compared name (letters), because shorter ones resemble too many others. */
const MIN_LENGTH = 8
/** Maximum edit distance of a misspelt name (letters). */
const MAX_DISTANCE = 2

/** Names that other programs have for a setting, and that resemble none. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  OPENAI_API_BASE: 'OPENAI_BASE_URL',
  GEMINI_API_KEY: 'GOOGLE_GENERATIVE_AI_API_KEY',
}

/** Returns whether a name is another one without some of its inner words: `OPENAI_KEY`. */
function isShortened(name: string, whole: string): boolean {
  const [words, all] = [name.split('_'), whole.split('_')]
  if (words.length < 2 || words.length >= all.length || words[0] !== all[0] || words.at(-1) !== all.at(-1)) return false
  return words.every((word) => all.includes(word))
}

const isTypo = (name: string, whole: string): boolean =>
  name.length >= MIN_LENGTH &&
  Math.abs(name.length - whole.length) <= MAX_DISTANCE &&
  distanceOf(name, whole) <= MAX_DISTANCE

/** Returns a sentence for each environment variable that is no setting and resembles an unset one. */
export function describeMisspelt(
  env: Readonly<Record<string, string | undefined>>,
  known: readonly string[],
): string[] {
  const free = known.filter((name) => !env[name]?.trim())
  const names = Object.keys(env).filter((name) => /^[A-Z][A-Z0-9_]*$/.test(name) && env[name]?.trim())
  return names.flatMap((name) => {
    if (known.includes(name)) return []
    const meant =
      free.find((whole) => whole === ELSEWHERE[name]) ??
      free.find((whole) => isShortened(name, whole)) ??
      free.find((whole) => isTypo(name, whole))
    return meant === undefined ? [] : [`${name} is no setting. Did you mean ${meant}?`]
  })
}
