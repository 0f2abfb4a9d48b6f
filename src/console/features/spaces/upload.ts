import { callMutation, callQuery, describeFailure, toFailure } from '../../api.ts'
import { toast } from '../../components/toast.tsx'
import { size } from '../../lib/format.ts'
import { isReadable } from '../../lib/stray-files.ts'
import { useAction } from '../../queries.ts'
import { spaces as t } from '../../texts/spaces.ts'
import { texts } from '../../texts.ts'

/** Maximum size of a file (bytes). A larger one would also block the page while it is encoded. */
const MAX_BYTES = 1024 * 1024

/** Maximum number of failed uploads in a message. */
const MAX_FAILURES = 5

/** An action that uploads files to a space. It asks before it replaces files, and shows the failures together. */
export const useUpload = (spaceId: string) =>
  useAction(
    async (files: readonly File[]) => {
      const taken = await Promise.all(files.map(({ name }) => isTaken(spaceId, name)))
      const replaced = files.flatMap(({ name }, index) => (taken[index] ? name : []))
      if (replaced.length && !confirm(t.replaceFiles(replaced.join(', ')))) return
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
          const reason = (await isReadable(file)) ? describeFailure(error) : texts.chat.unreadable
          failures.push(t.notUploaded(file.name, reason))
        }
      }
      if (failures.length < files.length) toast(t.filesSaved(files.length - failures.length))
      if (failures.length) toast(failures.slice(0, MAX_FAILURES).join('\n'), 'bad')
    },
    { changes: ['files.', 'spaces.'] },
  )

/**
 * Returns whether a space has a file. The page may show only the first files, and macOS writes letters with accents in
 * another form than the service. A path that cannot be one is refused when it is written.
 */
async function isTaken(spaceId: string, path: string): Promise<boolean> {
  try {
    const { files } = await callQuery('files.list', { id: spaceId, path, limit: 1 })
    return files[0]?.path === path.normalize('NFC')
  } catch (error) {
    if (toFailure(error).status === 400) return false
    throw error
  }
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
