import { expect, test } from 'vitest'
import { readSkillFile, type SkillFile } from '../../src/console/features/skills/skill-file.ts'

const NOTHING = { displayName: '', builtInTools: [], leftOut: [], files: [] }
const BLANKS = ' '.repeat(1_000_000)

test.each<[form: string, fileName: string, text: string, skill: Partial<SkillFile>]>([
  [
    'with plain fields',
    'SKILL.md',
    '---\nname: pdf-forms\ndescription: Fills forms: all of them. # A comment\n---\n\n# Forms\n\nFill them.\n',
    { name: 'pdf-forms', description: 'Fills forms: all of them.', prompt: '# Forms\n\nFill them.' },
  ],
  [
    'of Windows, with a folded text and other fields',
    'SKILL.md',
    '\ufeff---\r\nname: "Café Menus"\r\ndescription: >-\r\n  First\r\n  line.\r\n\r\n  Next.\r\nlicense: MIT\r\nmetadata:\r\n  author: x\r\n---\r\nBody\r\n',
    {
      name: 'cafe-menus',
      displayName: 'Café Menus',
      description: 'First line.\nNext.',
      leftOut: ['license', 'metadata'],
      prompt: 'Body',
    },
  ],
  [
    'with tools of other products in a line',
    'SKILL.md',
    "---\nname: x\ndescription: 'It''s long\n  and goes on'\nallowed-tools: Read, Bash(git add:*) Grep\n---\nBody",
    {
      name: 'x',
      description: "It's long and goes on",
      builtInTools: ['read_file', 'Bash', 'search_files'],
      prompt: 'Body',
    },
  ],
  [
    'with a list of tools, and a line of hyphens in its text',
    'SKILL.md',
    '---\nname: x\ndescription: |\n  One\n  two\nallowed-tools:\n  - WebFetch\n  - "Read"\n...\nOne\n---\nTwo',
    { name: 'x', description: 'One\ntwo', builtInTools: ['web_fetch', 'read_file'], prompt: 'One\n---\nTwo' },
  ],
  [
    'that names other files',
    'SKILL.md',
    '---\nname: x\ndescription: y\n---\nRun scripts/fill.py, see [it](./REFERENCE.md#top), [a page](https://example.com/a) and [here](#x).',
    {
      name: 'x',
      description: 'y',
      prompt: 'Run scripts/fill.py, see [it](./REFERENCE.md#top), [a page](https://example.com/a) and [here](#x).',
      files: ['REFERENCE.md', 'scripts/fill.py'],
    },
  ],
  [
    'with long blanks and brackets that nothing closes',
    'SKILL.md',
    `---\nname: x\ndescription: A${BLANKS}B # C\nallowed-tools: ${'Read('.repeat(200_000)}\n---\nBody`,
    { name: 'x', description: `A${BLANKS}B`, builtInTools: ['read_file'], prompt: 'Body' },
  ],
  [
    'with many comments in a text of several lines, and very many lines',
    'SKILL.md',
    `---\nname: x ${'# '.repeat(200_000)}\n\n  y\ndescription: |\n${'  A\n'.repeat(200_000)}---\nBody`,
    { name: 'x', description: 'A\n'.repeat(200_000).trim(), prompt: 'Body' },
  ],
  [
    'without fields',
    'Release notes.md',
    '# Notes\n\nWrite them.',
    { name: 'release-notes', displayName: 'Release notes', description: '', prompt: '# Notes\n\nWrite them.' },
  ],
  [
    'with a heading alone',
    'SKILL.md',
    '# Tides',
    { name: 'tides', displayName: 'Tides', description: '', prompt: '# Tides' },
  ],
])('a file of a skill %s is read', (_, fileName, text, skill) => {
  expect(readSkillFile(fileName, text)).toEqual({ ...NOTHING, ...skill })
})
