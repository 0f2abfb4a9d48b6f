import { COMMON_NAMES } from '../../../lib/built-in-tools.ts'
import { size } from '../../lib/format.ts'
import { skills as t } from '../../texts/skills.ts'

/** A skill in a file, as the form of a new skill takes it. */
export type SkillFile = {
  name: string
  displayName: string
  description: string
  prompt: string
  builtInTools: string[]
  /** Fields of the file that a skill does not have, such as `license`. */
  leftOut: string[]
  /** Other files that the text names, such as `scripts/fill.py`. */
  files: string[]
}

type Value = string | string[] | null

/** Maximum size of a file with a skill (bytes). Its prompt has at most 100,000 characters. */
const MAX_BYTES = 1024 * 1024

/** Reads a file with a skill. Throws the reason, for the person, if it cannot be one. */
export async function openSkillFile(file: File): Promise<SkillFile> {
  if (file.size > MAX_BYTES) throw new Error(t.tooLarge(size(MAX_BYTES)))
  const bytes = await file.arrayBuffer().catch(() => {
    throw new Error(t.unreadable)
  })
  const [first, second] = new Uint8Array(bytes)
  // "PK", the beginning of a ZIP.
  if (first === 0x50 && second === 0x4b) throw new Error(t.archive)
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new Error(t.noText)
  }
  return readSkillFile(file.name, text)
}

/** Maximum length of the name of a skill (characters). */
const MAX_NAME = 64

/**
 * Reads a `SKILL.md`: Markdown below fields in YAML. A file without fields is a prompt, whose name is that of the file.
 * Nothing is checked, because the person sees the fields before the skill is created.
 */
export function readSkillFile(fileName: string, content: string): SkillFile {
  const text = content.replace(/^\ufeff/, '').replace(/\r\n?/g, '\n')
  const [whole = '', head = ''] = /^---[ \t]*\n([\s\S]*?\n)(?:---|\.\.\.)[ \t]*(?:\n|$)/.exec(text) ?? []
  const { name, description, 'allowed-tools': tools = null, ...others } = readFields(head)
  const prompt = text.slice(whole.length).trim()
  const title = asText(name) || fileName.replace(/\.\w+$/, '').replace(/^skill$/i, '') || headingOf(prompt)
  const key = kebabCase(title)
  return {
    name: key,
    displayName: key === title ? '' : title,
    description: asText(description),
    prompt,
    builtInTools: [...new Set(toolsIn(tools).map((tool) => COMMON_NAMES.get(tool) ?? tool))],
    leftOut: Object.keys(others),
    files: filesIn(prompt),
  }
}

const asText = (value: Value | undefined): string => (Array.isArray(value) ? value.join(', ') : (value ?? '')).trim()

const headingOf = (prompt: string): string => /^#+[ \t]+(.+)$/m.exec(prompt)?.[1]?.trim() ?? ''

const kebabCase = (text: string): string =>
  text
    .normalize('NFKD')
    .replace(/\p{M}/gu, '')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, MAX_NAME)
    .replace(/^-|-$/g, '')

/** Lists the names of tools, such as of `Read, Bash(git add:*) Grep`. */
function toolsIn(value: Value): string[] {
  const text = Array.isArray(value) ? value.join(',') : (value ?? '')
  return text
    .replace(/\([^)]*(?:\)|$)/g, '')
    .split(/[\s,]+/)
    .filter(Boolean)
}

/** Lists the files beside the text: those of its links, and those in the usual folders. */
function filesIn(prompt: string): string[] {
  const links = [...prompt.matchAll(/\]\((?![a-z]+:|[#/])([^)\s#]+)/gi)].map(([, path = '']) => path)
  const paths = [...prompt.matchAll(/(?<![\w/.-])(?:scripts|references|assets)\/[\w./-]*\w/g)].map(([path]) => path)
  return [...new Set([...links, ...paths].map((path) => path.replace(/^\.\//, '')))]
}

/**
 * Reads the top level of a mapping in YAML: texts and lists of texts in all their forms. A mapping in it is null. Parsers
 * of YAML refuse what many public files have, such as `description: Use it for: forms`, whose text has a colon.
 */
function readFields(yaml: string): Record<string, Value> {
  const fields: Record<string, Value> = {}
  for (const [, name = '', first = '', rest = ''] of yaml.matchAll(
    /^([A-Za-z][\w-]*)[ \t]*:(?:[ \t]+(.*))?\n((?:(?:[ \t].*|-[ \t].*|[ \t]*)\n)*)/gm,
  ))
    fields[name] = readValue(first.trim(), rest)
  return fields
}

function readValue(first: string, rest: string): Value {
  const isBlock = /^[|>][\d+-]*(?:[ \t]+#.*)?$/.test(first)
  if (isBlock) return blockOf(rest, first.startsWith('>'))
  const lines = rest.split('\n').map((line) => line.trim())
  const isList = first === '' && lines.some((line) => /^-[ \t]/.test(line))
  if (isList) return lines.filter((line) => line.startsWith('-')).map((line) => scalarOf(line.slice(1).trim()))
  const whole = fold([first, ...lines]).trim()
  const [, inside] = /^\[(.*)\]$/.exec(whole) ?? []
  if (inside !== undefined) return inside.split(',').map((each) => scalarOf(each.trim()))
  return first === '' && /^[\w-]+[ \t]*:(?:[ \t]|$)/.test(whole) ? null : scalarOf(whole)
}

/** Joins lines as YAML does: an empty line is a line break, any other one a blank. */
const fold = (lines: readonly string[]): string =>
  lines
    .join('\n')
    .trimEnd()
    .replace(/(?<!\n)\n(?!\n)/g, ' ')
    .replace(/\n\n/g, '\n')

function blockOf(rest: string, isFolded: boolean): string {
  const lines = rest.trimEnd().split('\n')
  const indent = lines
    .filter((line) => line.trim())
    .reduce((least, line) => Math.min(least, line.length - line.trimStart().length), Number.POSITIVE_INFINITY)
  const texts = lines.map((line) => line.slice(indent).trimEnd())
  return isFolded ? fold(texts) : texts.join('\n')
}

function scalarOf(text: string): string {
  const [, double] = /^("(?:[^"\\]|\\.)*")/.exec(text) ?? []
  if (double) {
    try {
      return JSON.parse(double) as string
    } catch {
      // YAML has escapes that JSON does not have.
      return double.slice(1, -1)
    }
  }
  const [, single] = /^'((?:[^']|'')*)'/.exec(text) ?? []
  // A comment ends the text, also one of several lines.
  return single?.replaceAll("''", "'") ?? text.replace(/(?<![^ \t])#[\s\S]*/, '').trimEnd()
}
