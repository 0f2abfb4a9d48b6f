import { useQuery } from '@tanstack/react-query'
import { Download, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { callMutation, callQuery, type Output, toFailure } from '../../api.ts'
import { IconButton } from '../../components/button.tsx'
import { Code } from '../../components/code.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { useEdits } from '../../components/edits.ts'
import { Form } from '../../components/form.tsx'
import { useGuard } from '../../components/guard.ts'
import { Markdown } from '../../components/markdown.tsx'
import { Loaded } from '../../components/page.tsx'
import { Tabs } from '../../components/tabs.tsx'
import { withLineEnds } from '../../lib/line-ends.ts'
import { query, useAction } from '../../queries.ts'
import { spaces as t } from '../../texts/spaces.ts'
import { texts } from '../../texts.ts'

type Content = Output<'files.get'>

type FileProps = { spaceId: string; mayChange: boolean; path: string; onDeleted: () => void }

/** One file of a space: its content, which a person may change, download or delete. */
export function OpenFile({ spaceId, mayChange, path, onDeleted }: FileProps) {
  const file = useQuery(query('files.get', { id: spaceId, path }))
  const [isDeleting, setIsDeleting] = useState(false)
  const remove = useAction(() => callMutation('files.delete', { id: spaceId, path }), {
    changes: ['files.', 'spaces.'],
    done: texts.deleted,
    onDone: onDeleted,
  })
  return (
    <section aria-label={path}>
      <header className="mb-2 flex items-center gap-2">
        <h2 className="min-w-0 flex-1 truncate font-mono" dir="auto">
          {path}
        </h2>
        {file.data && <IconButton label={t.download} icon={Download} onClick={() => download(path, file.data)} />}
        {mayChange && <IconButton label={t.deleteFile} icon={Trash2} onClick={() => setIsDeleting(true)} />}
      </header>
      <Loaded query={file}>
        {(content) =>
          content.encoding === 'base64' ? (
            <Picture key={content.content} path={path} content={content.content} />
          ) : (
            <TextFile spaceId={spaceId} mayChange={mayChange} path={path} content={content} />
          )
        }
      </Loaded>
      {isDeleting && (
        <Confirm
          onClose={() => setIsDeleting(false)}
          title={t.deleteFileTitle(path)}
          text={t.deleteFileText}
          action={t.deleteFile}
          onConfirm={() => remove.mutateAsync(undefined)}
        />
      )}
    </section>
  )
}

/** The types of pictures that browsers show, by the ends of the names of their files. */
const PICTURES: Readonly<Record<string, string>> = {
  png: 'image/png',
  jpg: 'image/jpeg',
  jpeg: 'image/jpeg',
  gif: 'image/gif',
  webp: 'image/webp',
  avif: 'image/avif',
}

/** A picture, such as a chart that an agent has drawn. A file that is none can be downloaded only. */
function Picture({ path, content }: { path: string; content: string }) {
  const [isBroken, setIsBroken] = useState(false)
  const type = PICTURES[/\.(\w+)$/.exec(path)?.[1]?.toLowerCase() ?? '']
  if (!type || isBroken) return <p className="text-soft">{t.binary}</p>
  return (
    <img
      src={`data:${type};base64,${content}`}
      alt={path}
      className="max-h-[70vh] max-w-full rounded-lg border border-line"
      onError={() => setIsBroken(true)}
    />
  )
}

type TextProps = Pick<FileProps, 'spaceId' | 'mayChange' | 'path'> & { content: Content }

function TextFile({ spaceId, mayChange, path, content }: TextProps) {
  const read = async () => {
    const found = await callQuery('files.get', { id: spaceId, path }).catch((error) => {
      if (toFailure(error).status !== 404) throw error
    })
    return found ? { content: found.content } : null
  }
  const { draft, isChanged, set, check } = useEdits({ content: content.content }, { content: path }, read)
  useGuard(isChanged)
  const [tab, setTab] = useState<'preview' | 'source'>('preview')
  const save = useAction(() => check(() => callMutation('files.write', { id: spaceId, path, ...draft })), {
    changes: ['files.'],
    done: t.fileSaved,
    quiet: true,
  })
  const text = draft.content
  const preview = /\.(md|markdown)$/i.test(path) ? <Markdown text={text} /> : <Code text={text} />
  if (!mayChange) return preview
  return (
    <Tabs label={path} tabs={{ preview: t.preview, source: t.source }} value={tab} onChange={setTab}>
      {tab === 'preview' ? (
        preview
      ) : (
        <Form save={save} isReady={isChanged}>
          <textarea
            aria-label={t.content}
            dir="auto"
            spellCheck={false}
            className="field mb-2 min-h-80 font-mono text-xs"
            value={text}
            onChange={({ target }) => set({ content: withLineEnds(content.content, target.value) })}
          />
        </Form>
      )}
    </Tabs>
  )
}

function download(path: string, { content, encoding }: Content): void {
  const bytes = encoding === 'base64' ? Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0)) : content
  const url = URL.createObjectURL(new Blob([bytes], { type: 'application/octet-stream' }))
  const link = Object.assign(document.createElement('a'), { href: url, download: path.replace(/^.*\//, '') })
  link.click()
  URL.revokeObjectURL(url)
}
