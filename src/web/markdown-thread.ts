import { parentPort, workerData } from 'node:worker_threads'
import { Readability } from '@mozilla/readability'
import { parseHTML } from 'linkedom/worker'
import TurndownService from 'turndown'

// Converts an HTML page into Markdown, in a thread of its own because a hostile page can take any time and memory.

const { html, url } = workerData as { html: string; url: string }

/** Elements without text for a reader. */
const SILENT = [
  'script',
  'style',
  'noscript',
  'template',
  'svg',
  'iframe',
  'object',
  'form',
  'button',
  'select',
] as const

const turndown = new TurndownService({ headingStyle: 'atx', codeBlockStyle: 'fenced', bulletListMarker: '-' })
turndown.remove(SILENT as never)

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
  const article = new Readability(parse(), { charThreshold: 200 }).parse()
  const document = parse()
  const title = article?.title?.trim() || (document.querySelector('title')?.textContent?.trim() ?? '')
  const hasText = (article?.textContent?.trim().length ?? 0) > 0
  const content = hasText ? parseHTML(`<html><body>${article?.content}</body></html>`).document : document
  resolveAddresses(content as unknown as Document)
  return { title, markdown: turndown.turndown(content.body as never).trim() }
}

parentPort?.postMessage(convert())
