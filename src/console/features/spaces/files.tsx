import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { Download, FilePlus, FileText, Trash2, Upload } from 'lucide-react'
import { useRef, useState } from 'react'
import { callMutation, callQuery, describeFailure, type Output, toFailure } from '../../api.ts'
import { Button, IconButton } from '../../components/button.tsx'
import { Code } from '../../components/code.tsx'
import { Confirm, Dialog } from '../../components/dialog.tsx'
import { TextField } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { useDraft } from '../../components/guard.ts'
import { Markdown } from '../../components/markdown.tsx'
import { More } from '../../components/more.tsx'
import { Empty, Loaded } from '../../components/page.tsx'
import { Tabs } from '../../components/tabs.tsx'
import { toast } from '../../components/toast.tsx'
import { cn } from '../../lib/class-names.ts'
import { size } from '../../lib/format.ts'
import { everyMs, pages, query, useAction } from '../../queries.ts'
import { texts } from '../../texts.ts'

const t = texts.spaces

/** Maximum size of a file (bytes). A larger one would also block the page while it is encoded. */
const MAX_BYTES = 1024 * 1024

/** Maximum number of failed uploads in a message. */
const MAX_FAILURES = 5

type Props = { spaceId: string; mayChange: boolean; path: string | null; onOpen: (path: string | null) => void }

/** The files of a space, and one open file beside the list. */
export function Files({ spaceId, mayChange, path, onOpen }: Props) {
  const [isNew, setIsNew] = useState(false)
  const [isOver, setIsOver] = useState(false)
  const picker = useRef<HTMLInputElement>(null)
  const list = useInfiniteQuery({ ...pages('files.list', { id: spaceId }, 200), ...everyMs(15_000) })
  const upload = useAction(
    async (files: readonly File[]) => {
      const failures: string[] = []
      for (const file of files) {
        if (file.size > MAX_BYTES) {
          failures.push(texts.chat.tooLarge(file.name, size(MAX_BYTES)))
          continue
        }
        try {
          const content = await toBase64(file)
          await callMutation('files.write', { id: spaceId, path: file.name, content, encoding: 'base64' })
        } catch (error) {
          failures.push(t.notUploaded(file.name, describeFailure(error)))
        }
      }
      return failures
    },
    {
      changes: ['files.', 'spaces.'],
      onDone(failures, files) {
        if (failures.length < files.length) toast(t.filesSaved(files.length - failures.length))
        if (failures.length) toast(failures.slice(0, MAX_FAILURES).join('\n'), 'bad')
      },
    },
  )
  const uploadAll = (files: readonly File[]) => {
    const paths = new Set(list.data?.pages.flatMap((page) => page.files.map((file) => file.path)))
    const replaced = files.flatMap(({ name }) => (paths.has(name) ? name : []))
    if (!replaced.length || confirm(t.replaceFiles(replaced.join(', ')))) upload.mutate(files)
  }
  return (
    <div className="grid grid-cols-1 gap-4 lg:grid-cols-[18rem_minmax(0,1fr)]">
      <section
        aria-label={t.tabs.files}
        className={cn('self-start rounded-xl border', isOver ? 'border-accent bg-tint' : 'border-line')}
        onDragOver={(event) => {
          if (!mayChange || !event.dataTransfer.types.includes('Files')) return
          event.preventDefault()
          setIsOver(true)
        }}
        onDragLeave={() => setIsOver(false)}
        onDrop={(event) => {
          if (!mayChange) return
          event.preventDefault()
          setIsOver(false)
          uploadAll([...event.dataTransfer.files])
        }}
      >
        {mayChange && (
          <div className="flex gap-2 border-line border-b p-2">
            <input
              ref={picker}
              type="file"
              multiple
              hidden
              onChange={({ target }) => {
                uploadAll([...(target.files ?? [])])
                target.value = ''
              }}
            />
            <Button small icon={Upload} busy={upload.isPending} onClick={() => picker.current?.click()}>
              {t.upload}
            </Button>
            <Button small icon={FilePlus} onClick={() => setIsNew(true)}>
              {t.newFile}
            </Button>
          </div>
        )}
        <Loaded query={list}>
          {({ pages: read }) => {
            const files = read.flatMap((page) => page.files)
            if (!files.length) {
              return (
                <div className="p-4">
                  <p className="font-medium">{t.noFiles}</p>
                  {mayChange && <p className="text-soft">{t.noFilesText}</p>}
                </div>
              )
            }
            return (
              <ul className="max-h-[60vh] overflow-y-auto p-1">
                {files.map((file) => (
                  <li key={file.path}>
                    <button
                      type="button"
                      aria-current={file.path === path ? 'true' : undefined}
                      className={cn(
                        'flex w-full items-center gap-2 rounded-md px-2 py-1.5 text-left hover:bg-hover',
                        file.path === path && 'bg-hover font-medium',
                      )}
                      onClick={() => onOpen(file.path)}
                    >
                      <FileText size={15} aria-hidden className="shrink-0 text-soft" />
                      <bdi className="min-w-0 flex-1 truncate">{file.path}</bdi>
                      <span className="shrink-0 text-soft text-xs">{size(file.size)}</span>
                    </button>
                  </li>
                ))}
              </ul>
            )
          }}
        </Loaded>
        <More query={list} />
      </section>
      <div className="min-w-0">
        {path ? (
          <File key={path} spaceId={spaceId} mayChange={mayChange} path={path} onDeleted={() => onOpen(null)} />
        ) : (
          <Empty icon={FileText} title={t.pickFile} />
        )}
      </div>
      {isNew && (
        <NewFile
          spaceId={spaceId}
          onClose={(made) => {
            setIsNew(false)
            if (made) onOpen(made)
          }}
        />
      )}
    </div>
  )
}

async function toBase64(file: Blob): Promise<string> {
  const reader = new FileReader()
  const done = new Promise((resolve, reject) => {
    reader.onload = resolve
    reader.onerror = () => reject(reader.error)
  })
  reader.readAsDataURL(file)
  await done
  return String(reader.result).replace(/^[^,]*,/, '')
}

function NewFile({ spaceId, onClose }: { spaceId: string; onClose: (path: string | null) => void }) {
  const [path, setPath] = useState('')
  const create = useAction(
    async () => {
      const found = await callQuery('files.get', { id: spaceId, path }).catch((error) => {
        if (toFailure(error).status !== 404) throw error
      })
      if (found) throw new Error(t.fileExists)
      return callMutation('files.write', { id: spaceId, path, content: '' })
    },
    { changes: ['files.'], quiet: true, onDone: () => onClose(path) },
  )
  return (
    <Dialog open onClose={() => onClose(null)} title={t.newFile}>
      <Form save={create} isReady={path.trim() !== ''} label={texts.create} onCancel={() => onClose(null)}>
        <TextField
          label={t.path}
          field="path"
          help={t.pathHelp}
          value={path}
          onChange={({ target }) => setPath(target.value)}
        />
      </Form>
    </Dialog>
  )
}

type Content = Output<'files.get'>

type FileProps = { spaceId: string; mayChange: boolean; path: string; onDeleted: () => void }

function File({ spaceId, mayChange, path, onDeleted }: FileProps) {
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
            <p className="text-soft">{t.binary}</p>
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

type TextProps = Pick<FileProps, 'spaceId' | 'mayChange' | 'path'> & { content: Content }

function TextFile({ spaceId, mayChange, path, content }: TextProps) {
  const [text, setText, isChanged] = useDraft(content.content)
  const [tab, setTab] = useState<'preview' | 'source'>('preview')
  // The content that the person began with. Another person or an agent may write the file meanwhile.
  const first = useRef(content.content)
  if (!isChanged) first.current = content.content
  const save = useAction(
    async () => {
      const found = await callQuery('files.get', { id: spaceId, path }).catch((error) => {
        if (toFailure(error).status !== 404) throw error
      })
      if (found && found.content !== first.current && !confirm(t.fileChanged(path))) return false
      await callMutation('files.write', { id: spaceId, path, content: text })
      return true
    },
    { changes: ['files.'], quiet: true, onDone: (isSaved) => isSaved && toast(t.fileSaved) },
  )
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
            onChange={({ target }) => setText(target.value)}
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
