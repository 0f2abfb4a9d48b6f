import { texts } from '../texts.ts'

/** A field that the service refuses, and the reason. */
export type Refusal = { field: string; reason: string }

const t = texts.fields

/** The field that a message names, and its rule, in the forms of the API (contract.md section 1). */
const REFUSED =
  /^(?:(Missing) required field: |Invalid value for field: |Invalid (?:(?!\w+ value)[a-z]+ )?)([\p{L}\d_][\p{L}\d_.-]*?)(?: value)?(?:\. (.+))?$/isu

/** The rules of the API, and their words on a page. The last one is that of every other rule. */
const RULES: readonly (readonly [RegExp, (...found: string[]) => string])[] = [
  [/^Expected (?:number|finite number)$/, () => t.number],
  [/^Expected integer$/, () => t.integer],
  [/^Expected at least (\S+) items?$/, (least) => t.items(least ?? '')],
  [/^Expected at least (.+)$/, (least) => t.least(least ?? '')],
  [/^Expected at most (.+)$/, (most) => t.most(most ?? '')],
  [/^Expected one of: (.+)$/s, (values) => t.oneOf(values ?? '')],
  [/^Expected kebab-case$/, () => t.kebabCase],
  [/^(?:Expected|Must be) (.+)$/s, (rule) => t.mustBe(rule ?? '')],
]

function inWords(rule: string): string {
  for (const [form, words] of RULES) {
    const found = form.exec(rule)
    if (found) return words(...found.slice(1))
  }
  return rule
}

/** Names of the API at the beginning of its messages, each with the name that the pages use. */
const NAMES: readonly (readonly [RegExp, string])[] = [
  [/^Chat execution(?= failed)/, texts.run],
  [/^Execution(?= (?:not found|was cancelled|tree limit))/, texts.run],
  [/^Cannot cancel execution with status: .*/, texts.runEnded],
  [/^MCP(?= not found)/, texts.mcp],
  [/^Media(?= not found)/, texts.chat.upload],
]

/** Replaces the name of a resource in a message of the API by that of the pages. */
export const inPageWords = (message: string): string =>
  NAMES.reduce((words, [name, ours]) => words.replace(name, ours), message)

/** Ends a text with a full stop, unless it has an end. */
export const asSentence = (text: string) => text.replace(/[^.?!]$/, '$&.')

/** Returns the field that a message of the API refuses, and the reason in the words of a page. Null if it names none. */
export function refusalIn(message: string, detail: string | null): Refusal | null {
  const [, missing, field, rule] = REFUSED.exec(message) ?? []
  if (!field) return null
  const reasons = missing ? [t.missing] : [rule ? inWords(rule) : t.invalid, detail]
  return { field, reason: reasons.flatMap((each) => (each ? asSentence(each) : [])).join(' ') }
}
