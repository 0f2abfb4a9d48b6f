import { parentPort, workerData } from 'node:worker_threads'
import { Readability } from '@mozilla/readability'
import { parseHTML } from 'linkedom/worker'
import TurndownService from 'turndown'

// Converts an HTML page into Markdown, in a thread of its own because a hostile page can take any time and memory.

const { html, url } = workerData as { html: string; url: string }

/** Elements without text for a reader. */
const SILENT = ['script', 'style', 'noscript', 'template', 'svg', 'iframe', 'object', 'button', 'select'] as const

const turndown = new TurndownService({ headingStyle: 'atx', codeBlockStyle: 'fenced', bulletListMarker: '-' })
turndown.remove(SILENT as never)

/** Many pages write code in `<pre>` alone, in many elements, and with `<br>`. */
turndown.addRule('code', {
  filter: 'pre',
  replacement: (_, node) => {
    const element = node as HTMLElement
    for (const line of element.querySelectorAll('br')) line.replaceWith('\n')
    const text = element.textContent.replace(/^\n|\s+$/g, '')
    const classes = [element, element.parentElement, element.querySelector('code')].map((one) => one?.className ?? '')
    const language = /\b(?:language|lang|highlight-source|brush:)-? ?([\w+#-]+)/.exec(classes.join(' '))?.[1] ?? ''
    const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map(({ length }) => length))
    const fence = '`'.repeat(longest + 1)
    return `\n\n${fence}${language}\n${text}\n${fence}\n\n`
  },
})

/** Maximum length of a cell of a table (characters). Longer ones arrange a page, which is read as paragraphs. */
const MAX_CELL = 1_000

const tables = new WeakMap<Element, boolean>()

/** Returns whether a table holds data: rows of several short cells, without a table inside. */
function isOfData(table: Element): boolean {
  const known = tables.get(table)
  if (known !== undefined) return known
  const rows = [...table.querySelectorAll('tr')]
  const cells = [...table.querySelectorAll('td, th')]
  const isFit =
    rows.length > 1 &&
    cells.length > rows.length &&
    !table.querySelector('table, pre') &&
    cells.every(({ textContent }) => textContent.trim().length <= MAX_CELL)
  tables.set(table, isFit)
  return isFit
}

const isOfDataTable = (node: Node): boolean => {
  const table = (node as Element).closest('table')
  return table !== null && isOfData(table)
}

turndown.addRule('cell', {
  filter: (node) => ['TD', 'TH'].includes(node.nodeName) && isOfDataTable(node),
  replacement: (content, node) => {
    const span = Math.min(Number((node as Element).getAttribute('colspan')) || 1, 20)
    return ` ${content
      .trim()
      .replace(/\s*\n\s*/g, ' ')
      .replaceAll('|', '\\|')} |${' |'.repeat(span - 1)}`
  },
})

turndown.addRule('row', {
  filter: (node) => node.nodeName === 'TR' && isOfDataTable(node),
  replacement: (content, node) => {
    const isFirst = (node as Element).closest('table')?.querySelector('tr') === node
    const columns = content.replaceAll('\\|', '').split('|').length - 1
    return `\n|${content}${isFirst ? `\n|${' --- |'.repeat(columns)}` : ''}`
  },
})

turndown.addRule('rows', {
  filter: (node) => ['THEAD', 'TBODY', 'TFOOT'].includes(node.nodeName) && isOfDataTable(node),
  replacement: (content) => content,
})

turndown.addRule('table', {
  filter: (node) => node.nodeName === 'TABLE' && isOfDataTable(node),
  replacement: (content) => `\n\n${content.trim()}\n\n`,
})

/** Parses a page, also a fragment without `<html>`. */
function parse(): Document {
  const whole = /<html[\s>]/i.test(html) ? html : `<!doctype html><html><body>${html}</body></html>`
  return parseHTML(whole).document as unknown as Document
}

/** Makes the addresses of links and pictures absolute. */
function resolveAddresses(document: Document): void {
  const base = document.querySelector('base[href]')?.getAttribute('href') ?? ''
  const root = URL.parse(base, url)?.href ?? url
  for (const [selector, name] of [
    ['a[href]', 'href'],
    ['img[src]', 'src'],
  ] as const) {
    for (const element of document.querySelectorAll(selector)) {
      const target = URL.parse(element.getAttribute(name) ?? '', root)
      if (target && /^(?:https?|mailto):$/.test(target.protocol)) element.setAttribute(name, target.href)
      else element.removeAttribute(name)
    }
  }
}

/** Returns the main text of a page; the whole body if it has no main text. */
function convert(): { title: string; markdown: string } {
  // The extraction changes the document.
  const article = new Readability(parse(), { keepClasses: true }).parse()
  const document = parse()
  const title = article?.title?.trim() || (document.querySelector('title')?.textContent?.trim() ?? '')
  const hasText = (article?.textContent?.trim().length ?? 0) > 0
  const content = hasText ? parseHTML(`<html><body>${article?.content}</body></html>`).document : document
  resolveAddresses(content as unknown as Document)
  return { title, markdown: turndown.turndown(content.body as never).trim() }
}

parentPort?.postMessage(convert())
