import { readFileSync } from 'node:fs'

type Fence = { language: string; text: string; line: number }

type Page = { fences: Fence[]; anchors: ReadonlySet<string>; links: string[]; codes: string[] }

/** Returns the anchor of a heading, as GitHub makes it. The site uses the same. */
export const slugify = (heading: string): string =>
  heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\p{M}\s_-]/gu, '')
    .replace(/\s/g, '-')

/** Reads a Markdown file: its code fences, the anchors of its headings, its links and its inline code. */
export function readPage(path: string): Page {
  const fences: Fence[] = []
  const source = readFileSync(path, 'utf8')
  const prose = source.replace(/^( *)```(\w*)[^\n]*\n(.*?)^\1```$/gms, (whole, _, language, text, offset) => {
    fences.push({ language, text, line: source.slice(0, offset).split('\n').length })
    return whole.replace(/[^\n]/g, '')
  })
  const anchors = new Set<string>()
  for (const [, heading = ''] of prose.matchAll(/^#+ +(.*)$/gm)) {
    const anchor = slugify(heading.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1'))
    const number = [...anchors].filter((other) => other === anchor || other.startsWith(`${anchor}-`)).length
    anchors.add(anchors.has(anchor) ? `${anchor}-${number}` : anchor)
  }
  const codes = [...prose.matchAll(/`([^`\n]+)`/g)].map(([, code = '']) => code)
  const withoutCode = prose.replace(/`[^`\n]+`/g, '')
  const links = [...withoutCode.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link)
  return { fences, anchors, links, codes }
}
