import { type ComponentType, lazy, Suspense } from 'react'

/** A greeting without its form, until the renderer of Markdown has been loaded, and without a connection. */
const Plain = ({ text }: { text: string }) => (
  <p dir="auto" className="whitespace-pre-wrap">
    {text}
  </p>
)

const Markdown = lazy<ComponentType<{ text: string }>>(async () => {
  const loaded = await import('../../components/markdown.tsx').catch(() => null)
  return { default: loaded?.Markdown ?? Plain }
})

/** The greeting of an agent. The renderer of Markdown is no part of the first load. */
export const Greeting = ({ text }: { text: string }) => (
  <Suspense fallback={<Plain text={text} />}>
    <Markdown text={text} />
  </Suspense>
)
