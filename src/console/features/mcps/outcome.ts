import { mcps } from '../../texts/mcps.ts'

const t = mcps.connection

/** The outcome of a sign-in from which the browser has returned, with the code of a refusal. */
export type Outcome = { problem: string; code: string | undefined }

/** Describes a failed sign-in. Anyone can write an address, so a code that may be a text is left out. */
export function describe({ problem, code = '' }: Outcome): string | undefined {
  if (problem !== 'refused' || !/^[a-z_]{1,60}$/.test(code)) return textIn(t.problems, problem)
  return textIn(t.refusals, code) ?? t.refusedWith(code)
}

/** Returns the text of a name. Names such as `__proto__` have none, though every object answers to them. */
const textIn = (texts: Readonly<Record<string, string>>, name: string): string | undefined =>
  Object.hasOwn(texts, name) ? texts[name] : undefined
