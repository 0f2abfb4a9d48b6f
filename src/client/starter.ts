type Named = { name: string; description: string | null }
type NewFile = { path: string; content: Buffer<ArrayBuffer> }

const file = (path: string, text: string): NewFile => ({ path, content: Buffer.from(text) })

/** Returns the README.md of a space. */
export const readme = ({ name, description }: Named): NewFile[] => [
  file('README.md', `# ${name}\n${description ? `\n${description}\n` : ''}`),
]

const AGENTS = `# Instructions for agents

- Read README.md first: it says what this space is for.
- Keep what others should find again in files of this space, not only in your answers.
- Skills are in the folder skills, one folder each. Use one when its description fits your task.
`

const SKILL = `---
name: summarize
description: Sums up a long text for somebody who has no time to read it. Use it when asked for a summary.
---

# Summarize

1. Read the whole text before you write anything.
2. Begin with the one sentence that matters most.
3. Go on with at most five points, the most important first. Name numbers, dates and people as the text has them.
4. End with what is open or has to be decided. Leave this out when there is nothing.

Add nothing that the text does not say.
`

/** Returns the initial files of a space: its purpose, instructions for agents, and an example skill. */
export const starterKit = (space: Named): NewFile[] => [
  ...readme(space),
  file('AGENTS.md', AGENTS),
  file('skills/summarize/SKILL.md', SKILL),
]
