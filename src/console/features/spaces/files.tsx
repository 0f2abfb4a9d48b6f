import { useInfiniteQuery } from '@tanstack/react-query'
import { FilePlus, FileText, Upload } from 'lucide-react'
import { useEffect, useRef, useState } from 'react'
import { callMutation, callQuery, toFailure } from '../../api.ts'
import { Button } from '../../components/button.tsx'
import { fits } from '../../components/combobox.ts'
import { Dialog } from '../../components/dialog.tsx'
import { TextField } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { More } from '../../components/more.tsx'
import { Empty, Loaded } from '../../components/page.tsx'
import { SearchField, useSearching } from '../../components/search.tsx'
import { cn } from '../../lib/class-names.ts'
import { size } from '../../lib/format.ts'
import { everyMs, pages, useAction } from '../../queries.ts'
import { spaces as t } from '../../texts/spaces.ts'
import { texts } from '../../texts.ts'
import { OpenFile } from './file.tsx'
import { useUpload } from './upload.ts'

type Props = { spaceId: string; mayChange: boolean; path: string | null; onOpen: (path: string | null) => void }

/** Number of files from which on the list has a search. */
const MANY = 10

/** The files of a space, and one open file beside the list. */
export function Files({ spaceId, mayChange, path, onOpen }: Props) {
  const [isNew, setIsNew] = useState(false)
  const [isOver, setIsOver] = useState(false)
  const picker = useRef<HTMLInputElement>(null)
  const list = useInfiniteQuery({ ...pages('files.list', { id: spaceId }, 200), ...everyMs(15_000) })
  const {
    filter: { search = '' },
    field,
  } = useSearching()
  // A search is among all files.
  const { hasNextPage, isFetching, isError, fetchNextPage } = list
  const isIncomplete = search !== '' && hasNextPage && !isError
  useEffect(() => {
    if (isIncomplete && !isFetching) void fetchNextPage()
  }, [isIncomplete, isFetching, fetchNextPage])
  const upload = useUpload(spaceId)
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
          upload.mutate([...event.dataTransfer.files])
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
                upload.mutate([...(target.files ?? [])])
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
            const found = files.filter((file) => fits(file.path, search))
            return (
              <>
                {(files.length >= MANY || field.value) && (
                  <div className="p-2 pb-0">
                    <SearchField list={t.tabs.files} {...field} />
                  </div>
                )}
                <div className="max-h-[60vh] overflow-y-auto p-1">
                  {!found.length && (
                    <p role="status" className="p-2 text-soft">
                      {isIncomplete ? texts.loading : texts.noMatch}
                    </p>
                  )}
                  <ul>
                    {found.map((file) => (
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
                          <Path path={file.path} />
                          <span className="shrink-0 text-soft text-xs">{size(file.size)}</span>
                        </button>
                      </li>
                    ))}
                  </ul>
                  <More query={list} />
                </div>
              </>
            )
          }}
        </Loaded>
      </section>
      <div className="min-w-0">
        {path ? (
          <OpenFile key={path} spaceId={spaceId} mayChange={mayChange} path={path} onDeleted={() => onOpen(null)} />
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

/** The name of a file above its folder, so that the name of a file in a deep folder is not cut off. */
function Path({ path }: { path: string }) {
  const end = path.lastIndexOf('/') + 1
  return (
    <span className="min-w-0 flex-1">
      <bdi className="block truncate">{path.slice(end)}</bdi>
      {end > 0 && <bdi className="block truncate text-soft text-xs">{path.slice(0, end)}</bdi>}
    </span>
  )
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
          isCode
          field="path"
          help={t.pathHelp}
          required
          value={path}
          onChange={({ target }) => setPath(target.value)}
        />
      </Form>
    </Dialog>
  )
}
