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

/** Returns all problems of the repository's Markdown: links, anchors, paths, code samples, and pages without a link. */
export function checkPages(root: string): string[] {
  const problems: string[] = []
  const schema = buildSchema(readFileSync(join(root, 'schema.graphql'), 'utf8'))
  const files = globSync(['*.md', '{docs,examples,test,bench,.github}/**/*.md', 'src/**/README.md'], { cwd: root })
    .map((file) => file.replaceAll('\\', '/'))
    .filter((file) => !file.includes('node_modules/') && !file.startsWith('bench/peers/'))
  const pages = new Map(files.map((file) => [file, readPage(join(root, file))]))

  for (const [file, { fences, anchors, links, codes }] of pages) {
    for (const link of links) {
      if (/^[a-z]+:/.test(link)) continue
      const [path = '', anchor] = link.split('#')
      const target = path ? relative(root, join(root, dirname(file), decodeURI(path))).replaceAll('\\', '/') : file
      const isFound = existsSync(join(root, target))
      if (!isFound) problems.push(`${file}: the link ${link} leads to no file`)
      const known = path ? pages.get(target)?.anchors : anchors
      if (isFound && anchor && !known?.has(anchor)) problems.push(`${file}: the link ${link} leads to no heading`)
    }
    if (file.startsWith('docs/spec/')) continue
    for (const code of codes) {
      if (REPOSITORY_PATH.test(code) && !code.startsWith('docs/plan') && !existsSync(join(root, code))) {
        problems.push(`${file}: ${code} does not exist`)
      }
    }
    for (const { language, text, line } of fences) {
      const problem = checkSample(language, text, schema)
      if (problem) problems.push(`${file}:${line}: this code sample is invalid: ${problem}`)
    }
  }

  const walks = 'docs/architecture/walks.md'
  for (const name of checkWalk(root, readFileSync(join(root, walks), 'utf8'))) {
    problems.push(`${walks}: no file of its row contains ${name}`)
  }

  const log = 'docs/reference/log.md'
  problems.push(...checkLogLines(root, readFileSync(join(root, log), 'utf8')).map((problem) => `${log}: ${problem}`))

  const listed = SIDEBAR.flatMap(({ items }) => items.map(({ link }) => `docs${link.replace(/\/$/, '/index')}.md`))
  const site = files.filter((file) => file.startsWith('docs/') && file !== 'docs/index.md')
  for (const file of site)
    if (!listed.includes(file)) problems.push(`${file}: .config/docs/sidebar.ts does not list it`)
  for (const file of listed)
    if (!site.includes(file)) problems.push(`${file}: .config/docs/sidebar.ts lists it, but it does not exist`)

  for (const file of ['README.md', 'ARCHITECTURE.md']) {
    const words = readFileSync(join(root, file), 'utf8').match(/\S*[\p{L}\p{N}]\S*/gu)?.length ?? 0
    if (words > MAX_WORDS)
      problems.push(`${file}: it has ${words} words; the maximum is ${MAX_WORDS}: move parts for few readers to docs`)
  }
  return problems
}
