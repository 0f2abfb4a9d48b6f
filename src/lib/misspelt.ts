import { distanceOf } from './nearest.ts'

/** A shorter name is like too many others (letters). */
const MIN_LENGTH = 8
/** Maximum number of letters in which a misspelt name differs. */
const MAX_DISTANCE = 2

/** Whether a name is another one without some of the words between its first and its last: `OPENAI_KEY`. */
function isShortened(name: string, whole: string): boolean {
  const [words, all] = [name.split('_'), whole.split('_')]
  if (words.length < 2 || words.length >= all.length || words[0] !== all[0] || words.at(-1) !== all.at(-1)) return false
  return words.every((word) => all.includes(word))
}

const isTypo = (name: string, whole: string): boolean =>
  name.length >= MIN_LENGTH && distanceOf(name, whole) <= MAX_DISTANCE

/**
 * Finds variables of an environment that are no settings and look like one that is not set: pairs of the name that is
 * there and the one that is probably meant.
 */
export function findMisspelt(
  env: Readonly<Record<string, string | undefined>>,
  known: readonly string[],
): [name: string, meant: string][] {
  const free = known.filter((name) => !env[name]?.trim())
  const names = Object.keys(env).filter((name) => /^[A-Z][A-Z0-9_]*$/.test(name) && env[name]?.trim())
  return names.flatMap((name): [string, string][] => {
    if (known.includes(name)) return []
    const meant = free.find((whole) => isShortened(name, whole)) ?? free.find((whole) => isTypo(name, whole))
    return meant === undefined ? [] : [[name, meant]]
  })
}
