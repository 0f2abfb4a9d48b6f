import { Check, Copy } from 'lucide-react'
import { useState } from 'react'
import { cn } from '../lib/class-names.ts'
import { texts } from '../texts.ts'
import { IconButton } from './button.tsx'
import { toast } from './toast.tsx'

/** Copies a text. Pages without HTTPS have no clipboard, but can answer the event of a copy. */
async function copy(text: string): Promise<void> {
  if ('clipboard' in navigator) return navigator.clipboard.writeText(text)
  let isCopied = false
  const onCopy = (event: ClipboardEvent) => {
    event.preventDefault()
    event.clipboardData?.setData('text/plain', text)
    isCopied = true
  }
  document.addEventListener('copy', onCopy)
  document.execCommand('copy')
  document.removeEventListener('copy', onCopy)
  if (!isCopied) throw new Error('The browser did not copy')
}

export function CopyButton({ text, label = texts.copy }: { text: string; label?: string }) {
  const [done, setDone] = useState(false)
  return (
    <IconButton
      label={done ? texts.copied : label}
      icon={done ? Check : Copy}
      onClick={() =>
        copy(text).then(
          () => {
            setDone(true)
            setTimeout(() => setDone(false), 2_000)
          },
          () => toast(texts.notCopied, 'bad'),
        )
      }
    />
  )
}

/** Code or data with a button that copies it. */
export function Code({
  text,
  language,
  className,
  isWrapped,
}: {
  text: string
  language?: string
  className?: string
  /** Whether a long line continues below, so that all of it is visible. */
  isWrapped?: boolean
}) {
  return (
    <div className={`group relative overflow-hidden rounded-lg border border-line bg-panel ${className ?? ''}`}>
      {language && <div className="border-line border-b px-3 py-1.5 font-mono text-soft text-xs">{language}</div>}
      <pre
        tabIndex={0}
        dir="ltr"
        className={cn(
          'max-h-[32rem] overflow-auto px-3 py-2.5 font-mono text-xs leading-5',
          isWrapped && 'wrap-anywhere whitespace-pre-wrap pr-10',
        )}
      >
        {text}
      </pre>
      <div className={`absolute right-0.5 rounded-md bg-panel ${language ? '-top-px' : 'top-0.5'}`}>
        <CopyButton text={text} />
      </div>
    </div>
  )
}
