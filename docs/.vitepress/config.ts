import { existsSync, statSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { defineConfig, type MarkdownRenderer } from 'vitepress'
import { slugify } from '../../.config/docs/markdown.ts'
import { SIDEBAR } from '../../.config/docs/sidebar.ts'

const docs = dirname(import.meta.dirname)
const root = dirname(docs)

/** Returns whether a link of a page leads to a file of the repository that is no page of the site. */
function leavesSite(href: string, page: string): boolean {
  if (/^(?:[a-z]+:|[#/])/.test(href)) return false
  const target = join(dirname(page), href.replace(/[?#].*/, ''))
  const isPage = !relative(docs, target).startsWith('..') && target.endsWith('.md')
  return !isPage && existsSync(target)
}

/**
 * Shows links to files of the repository as plain text, and any HTML but line breaks and comments as it is written.
 * Lets lines break in long names and paths.
 */
function adapt(md: MarkdownRenderer): void {
  const openLink =
    md.renderer.rules.link_open ?? ((tokens, index, options, _, self) => self.renderToken(tokens, index, options))
  const closeLink =
    md.renderer.rules.link_close ?? ((tokens, index, options, _, self) => self.renderToken(tokens, index, options))
  let isPlain = false
  md.renderer.rules.link_open = (tokens, index, options, env, self) => {
    const href = decodeURI(tokens[index]?.attrGet('href') ?? '')
    isPlain = leavesSite(href, env.path)
    if (!isPlain) return openLink(tokens, index, options, env, self)
    const path = relative(root, join(dirname(env.path), href))
    return `<span title="In the repository: ${md.utils.escapeHtml(path)}${statSync(join(root, path.replace(/#.*/, ''))).isDirectory() ? '/' : ''}">`
  }
  md.renderer.rules.link_close = (tokens, index, options, env, self) => {
    if (!isPlain) return closeLink(tokens, index, options, env, self)
    isPlain = false
    return '</span>'
  }
  const code = md.renderer.rules.code_inline
  md.renderer.rules.code_inline = (...given) =>
    code?.(...given).replace(/>([^<]*)</, (text) => text.replace(/(?<=[\w}])[_/:](?=[\w{])/g, '$&<wbr>')) ?? ''
  const isHarmless = (html: string) => /^\s*(?:<br>|<!--[\s\S]*-->)\s*$/.test(html)
  for (const rule of ['html_inline', 'html_block'] as const) {
    md.renderer.rules[rule] = (tokens, index) => {
      const html = tokens[index]?.content ?? ''
      return isHarmless(html) ? html : md.utils.escapeHtml(html)
    }
  }
}

export default defineConfig({
  title: 'Muster',
  description: "Run your organization's AI agents",
  lang: 'en',
  outDir: '../dist/docs',
  cacheDir: '../node_modules/.cache/vitepress',
  head: [
    ['link', { rel: 'icon', href: 'data:,' }],
    [
      'style',
      {},
      // The lines of a picture meet. Tables fit the page.
      `.vp-doc .language-text pre code { line-height: 1.3 }
      .vp-doc .language-text .lang { display: none }
      .vp-doc td { vertical-align: top }
      @media (max-width: 640px) {
        .vp-doc th, .vp-doc td { padding: 6px 8px }
        .vp-doc td { min-width: 6em; overflow-wrap: anywhere; hyphens: auto }
        .vp-doc td code { hyphens: none }
      }`,
    ],
  ],
  markdown: { anchor: { slugify }, config: adapt },
  themeConfig: {
    search: {
      provider: 'local',
      options: {
        miniSearch: {
          // Names such as EXECUTE_RATE_LIMIT are words of their own beside their parts.
          options: { tokenize: (text) => [...text.split(/[\n\r\p{Z}\p{P}]+/u), ...(text.match(/\w+_\w+/g) ?? [])] },
          // The specification and decisions come after the pages for users.
          searchOptions: { boostDocument: (id) => (/\/(?:spec|adr)\//.test(id) ? 0.2 : 1) },
        },
      },
    },
    nav: [
      { text: 'Quick start', link: '/quick-start' },
      { text: 'Concepts', link: '/concepts/' },
      {
        text: 'Guides',
        items: [
          { text: 'By goal', link: '/guides/' },
          { text: 'Build', link: '/guides/console' },
          { text: 'Operate', link: '/guides/operating' },
        ],
      },
      { text: 'Reference', link: '/reference/settings' },
      { text: 'Architecture', link: '/architecture/' },
    ],
    sidebar: SIDEBAR,
    outline: [2, 3],
    notFound: {
      quote: 'The address is wrong, or the page has moved. The search finds it.',
      linkText: 'To the first page',
    },
  },
})
