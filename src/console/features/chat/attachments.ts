import { useCallback, useState } from 'react'
import { describeFailure, rest } from '../../api.ts'
import { toast } from '../../components/toast.tsx'
import { size } from '../../lib/format.ts'
import { newId } from '../../lib/id.ts'
import { texts } from '../../texts.ts'

/** Maximum size of a file (bytes). */
const MAX_BYTES = 25 * 1024 * 1024
const MAX_FILES = 20

export type Attachment = { key: string; name: string; size: number; mediaId: string | null; error: string | null }

/** Files that are uploading for a message. */
export function useAttachments() {
  const [attachments, setAttachments] = useState<readonly Attachment[]>([])

  const change = useCallback(
    (key: string, changes: Partial<Attachment>) =>
      setAttachments((before) => before.map((each) => (each.key === key ? { ...each, ...changes } : each))),
    [],
  )

  const add = useCallback(
    (files: readonly File[]) => {
      const left = MAX_FILES - attachments.length
      if (files.length > left) toast(texts.chat.tooMany(MAX_FILES), 'bad')
      for (const file of files.slice(0, left)) {
        if (file.size === 0) {
          toast(texts.chat.emptyFile(file.name), 'bad')
          continue
        }
        if (file.size > MAX_BYTES) {
          toast(texts.chat.tooLarge(file.name, size(MAX_BYTES)), 'bad')
          continue
        }
        const key = newId()
        const name = file.name || texts.chat.pasted
        setAttachments((before) => [...before, { key, name, size: file.size, mediaId: null, error: null }])
        const form = new FormData()
        form.set('file', file, name)
        rest<{ id: string }>('POST', '/api/v1/media', form).then(
          ({ id }) => change(key, { mediaId: id }),
          (error) => change(key, { error: describeFailure(error) }),
        )
      }
    },
    [change, attachments.length],
  )

  const remove = useCallback((key: string) => setAttachments((before) => before.filter((each) => each.key !== key)), [])
  const clear = useCallback(() => setAttachments([]), [])
  return { attachments, add, remove, clear }
}
