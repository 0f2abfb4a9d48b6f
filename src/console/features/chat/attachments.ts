import { useCallback, useSyncExternalStore } from 'react'
import { chosenOrganization, describeFailure, rest } from '../../api.ts'
import { toast } from '../../components/toast.tsx'
import { size } from '../../lib/format.ts'
import { newId } from '../../lib/id.ts'
import { readStoredList, store } from '../../lib/storage.ts'
import { isReadable } from '../../lib/stray-files.ts'
import { texts } from '../../texts.ts'

/** Maximum size of a file (bytes). */
const MAX_BYTES = 25 * 1024 * 1024
const MAX_FILES = 20

export type Attachment = { key: string; name: string; size: number; mediaId: string | null; error: string | null }

/** Returns whether a stored value is an uploaded file, which another version of the page may have stored. */
const isUploaded = (value: unknown): value is Attachment => {
  const { key, name, size, mediaId, error } = (value ?? {}) as Partial<Attachment>
  return [key, name, mediaId].every((each) => typeof each === 'string') && typeof size === 'number' && error === null
}

/** An upload belongs to an organization. */
const keyOf = (draft: string) => `muster.files.${chosenOrganization.get()}.${draft}`

const NONE: readonly Attachment[] = []
const byDraft = new Map<string, readonly Attachment[]>()
const listeners = new Set<() => void>()

/** Returns the files of a draft. Uploaded ones survive a reload of this tab, as its text does. */
function filesOf(draft: string): readonly Attachment[] {
  const known = byDraft.get(draft)
  if (known) return known
  const files = readStoredList('sessionStorage', keyOf(draft), isUploaded)
  byDraft.set(draft, files)
  return files
}

function change(draft: string, next: (before: readonly Attachment[]) => readonly Attachment[]): void {
  const files = next(filesOf(draft))
  byDraft.set(draft, files)
  const uploaded = files.filter(({ mediaId }) => mediaId !== null)
  store('sessionStorage', keyOf(draft), uploaded.length ? JSON.stringify(uploaded) : null)
  for (const listener of listeners) listener()
}

/** Files that are not uploaded yet, by their keys. */
const waiting = new Map<string, File>()

const nameOf = (file: File) => file.name || texts.chat.pasted

/** Uploads a waiting file, for the first time or after a failure. */
function attempt(draft: string, key: string): void {
  const file = waiting.get(key)
  if (!file) return
  const patch = (changes: Partial<Attachment>) =>
    change(draft, (before) => before.map((each) => (each.key === key ? { ...each, ...changes } : each)))
  patch({ error: null })
  const form = new FormData()
  form.set('file', file, nameOf(file))
  rest<{ id: string }>('POST', '/api/v1/media', form).then(
    ({ id }) => {
      waiting.delete(key)
      patch({ mediaId: id })
    },
    async (error) => patch({ error: (await isReadable(file)) ? describeFailure(error) : texts.chat.unreadable }),
  )
}

function upload(draft: string, file: File): void {
  const key = newId()
  waiting.set(key, file)
  change(draft, (before) => [...before, { key, name: nameOf(file), size: file.size, mediaId: null, error: null }])
  attempt(draft, key)
}

/** The files of a message that is being written. They stay while the person looks at another page. */
export function useAttachments(draft: string) {
  const attachments = useSyncExternalStore(
    useCallback((listener: () => void) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    }, []),
    () => filesOf(draft),
  )
  const add = (files: readonly File[]) => {
    const left = MAX_FILES - attachments.length
    if (files.length > left) toast(texts.chat.tooMany(MAX_FILES), 'bad')
    for (const file of files.slice(0, left)) {
      if (file.size === 0) toast(texts.chat.emptyFile(file.name), 'bad')
      else if (file.size > MAX_BYTES) toast(texts.chat.tooLarge(file.name, size(MAX_BYTES)), 'bad')
      else upload(draft, file)
    }
  }
  const again = (key: string) => attempt(draft, key)
  const remove = (key: string) => {
    waiting.delete(key)
    change(draft, (before) => before.filter((each) => each.key !== key))
  }
  const clear = () => change(draft, () => NONE)
  return { attachments, add, again, remove, clear }
}
