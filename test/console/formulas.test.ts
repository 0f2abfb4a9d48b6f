import { Marked } from 'marked'
import { expect, test } from 'vitest'
import { formulas } from '../../src/console/lib/formulas.ts'

const marked = new Marked(formulas)
const html = (text: string) => (marked.parse(text, { async: false }) as string).trim()

test.each([
  ['\\(x_{1}^{2}\\)', 'x_{1}^{2}'],
  ['$\\{a, b\\}$', '\\{a, b\\}'],
  ['$$a_i \\\\ *b* < c$$', 'a_i \\\\ *b* &lt; c'],
  ['$x_1$,', 'x_1', ','],
])('the formula %s in a line stays as the model wrote it', (text, formula, after = '') => {
  expect(html(`So ${text} is`)).toBe(`<p>So <code>${formula}</code>${after} is</p>`)
})

test.each(['\\[\na_1\n+ b\\,c\n\\]', '$$\na_1\n+ b\\,c\n$$', '$$a_1\n+ b\\,c$$'])(
  'the formula %j on lines of its own stays as the model wrote it, also below a line of text',
  (text) => {
    const code = '<pre><code class="language-latex">a_1\n+ b\\,c\n</code></pre>'
    expect(html(`Before\n\n${text}\n\nAfter`)).toBe(`<p>Before</p>\n${code}\n<p>After</p>`)
    expect(html(`Before\n${text}\nAfter`)).toBe(`<p>Before</p>\n${code}\n<p>After</p>`)
    expect(html(`- ${text.replaceAll('\n', '\n  ')}`)).toContain(code)
  },
)

test.each([
  ['It costs $5 or $10_000.', '<p>It costs $5 or $10_000.</p>'],
  ['From $HOME_DIR to $PATH', '<p>From $HOME_DIR to $PATH</p>'],
  ['$A_B/$C_D', '<p>$A_B/$C_D</p>'],
  ['\\[1\\]', '<p>[1]</p>'],
  ['\\(*see* above\\)', '<p>(<em>see</em> above)</p>'],
  ['`\\(a_1\\)` and `$a_1$`', '<p><code>\\(a_1\\)</code> and <code>$a_1$</code></p>'],
  ['$$ a_1\n\nb $$', '<p>$$ a_1</p>\n<p>b $$</p>'],
  ['```\n$$\na_1\n$$\n```', '<pre><code>$$\na_1\n$$\n</code></pre>'],
])('the text %j has no formula', (text, expected) => {
  expect(html(text)).toBe(expected)
})
