import { execFileSync } from 'node:child_process'
import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { buildSchema, type GraphQLSchema, parse, validate } from 'graphql'
import { parseSync } from 'vite'
import { checkLogLines } from './log-lines.ts'
import { readPage } from './markdown.ts'
import { SIDEBAR } from './sidebar.ts'

/** Paths of this repository in inline code. */
const REPOSITORY_PATH = /^(?:src|test|docs|prisma|bench|examples|\.config|\.github)\/[\w./-]+$/

/** Maximum number of words of the two pages that everybody reads first. */
const MAX_WORDS = 900

/** Returns the problem of a code sample; null when it is valid. */
function checkSample(language: string, text: string, schema: GraphQLSchema): string | null {
  try {
    if (language === 'json') JSON.parse(text)
    if (language === 'ts') return parseSync('sample.ts', text).errors[0]?.message ?? null
    if (language === 'sh' || language === 'bash') execFileSync('bash', ['-n'], { input: text, stdio: 'pipe' })
    if (language === 'graphql') return validate(schema, parse(text))[0]?.message ?? null
    return language ? null : 'it names no language (text, if it has none)'
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

/** Returns the names of a walk's table that none of their row's files contains. */
function checkWalk(root: string, page: string): string[] {
  return [...page.matchAll(/^\| [^|]+ \| ([^|]+) \| ([^|]*) \|$/gm)].flatMap(([, files = '', names = '']) => {
    const codesIn = (cell: string) => [...cell.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code)
    const text = codesIn(files)
      .map((file) => (existsSync(join(root, file)) ? readFileSync(join(root, file), 'utf8') : ''))
      .join('\n')
    return codesIn(names).filter((name) => !new RegExp(`\\b${name}\\b`).test(text))
  })
}

type Page = ReturnType<typeof readPage>

/** Returns the links of a page that lead to no file or no heading. */
function checkLinks(root: string, file: string, pages: ReadonlyMap<string, Page>): string[] {
  return (pages.get(file)?.links ?? []).flatMap((link) => {
    if (/^[a-z]+:/.test(link)) return []
    const [path = '', anchor] = link.split('#')
    const target = path ? relative(root, join(root, dirname(file), decodeURI(path))).replaceAll('\\', '/') : file
    if (!existsSync(join(root, target))) return [`${file}: the link ${link} leads to no file`]
    const isFound = !anchor || pages.get(target)?.anchors.has(anchor)
    return isFound ? [] : [`${file}: the link ${link} leads to no heading`]
  })
}

/** Returns the paths of a page that do not exist, and its invalid code samples. */
function checkCode(root: string, file: string, { codes, fences }: Page, schema: GraphQLSchema): string[] {
  const missing = codes.filter(
    (code) => REPOSITORY_PATH.test(code) && !code.startsWith('docs/plan') && !existsSync(join(root, code)),
  )
  const invalid = fences.flatMap(({ language, text, line }) => {
    const problem = checkSample(language, text, schema)
    return problem ? [`${file}:${line}: this code sample is invalid: ${problem}`] : []
  })
  return [...missing.map((code) => `${file}: ${code} does not exist`), ...invalid]
}

/** Compares the pages of the site with those that its sidebar lists. */
function checkSidebar(files: readonly string[]): string[] {
  const listed = SIDEBAR.flatMap(({ items }) => items.map(({ link }) => `docs${link.replace(/\/$/, '/index')}.md`))
  const site = files.filter((file) => file.startsWith('docs/') && file !== 'docs/index.md')
  const unlisted = site.filter((file) => !listed.includes(file))
  const missing = listed.filter((file) => !site.includes(file))
  return [
    ...unlisted.map((file) => `${file}: .config/docs/sidebar.ts does not list it`),
    ...missing.map((file) => `${file}: .config/docs/sidebar.ts lists it, but it does not exist`),
  ]
}

/** Returns the problem of a page that is too long for its readers. */
function checkLength(root: string, file: string): string[] {
  const words = readFileSync(join(root, file), 'utf8').match(/\S*[\p{L}\p{N}]\S*/gu)?.length ?? 0
  if (words <= MAX_WORDS) return []
  return [`${file}: it has ${words} words; the maximum is ${MAX_WORDS}: move parts for few readers to docs`]
}

/** Returns all problems of the repository's Markdown: links, anchors, paths, code samples, and pages without a link. */
export function checkPages(root: string): string[] {
  const read = (file: string) => readFileSync(join(root, file), 'utf8')
  const schema = buildSchema(read('schema.graphql'))
  const files = globSync(['*.md', '{docs,examples,test,bench,.github}/**/*.md', 'src/**/README.md'], { cwd: root })
    .map((file) => file.replaceAll('\\', '/'))
    .filter((file) => !file.includes('node_modules/') && !file.startsWith('bench/peers/'))
  const pages = new Map(files.map((file) => [file, readPage(join(root, file))]))
  const walks = 'docs/architecture/walks.md'
  const log = 'docs/reference/log.md'
  return [
    ...files.flatMap((file) => checkLinks(root, file, pages)),
    ...[...pages].flatMap(([file, page]) => (file.startsWith('docs/spec/') ? [] : checkCode(root, file, page, schema))),
    ...checkWalk(root, read(walks)).map((name) => `${walks}: no file of its row contains ${name}`),
    ...checkLogLines(root, read(log)).map((problem) => `${log}: ${problem}`),
    ...checkSidebar(files),
    ...['README.md', 'ARCHITECTURE.md'].flatMap((file) => checkLength(root, file)),
  ]
}
