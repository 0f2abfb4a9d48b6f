import { RotateCcw } from 'lucide-react'
import { useState } from 'react'
import { IconButton } from '../../components/button.tsx'
import { Problem } from '../../components/page.tsx'
import { useOnce } from '../../once.ts'
import { useAction } from '../../queries.ts'
import { agents as t } from '../../texts/agents.ts'
import { Composer } from '../chat/composer.tsx'
import { addAccepted } from '../chat/outgoing.ts'
import { Thread } from '../chat/thread.tsx'

/** A chat with the agent beside its editor. */
export function TryIt({ agentId, isChanged }: { agentId: string; isChanged: boolean }) {
  const [chatId, setChatId] = useState<string | null>(null)
  const once = useOnce()
  const begin = useAction(
    ({ text, mediaIds }: { text: string; mediaIds: string[] }) =>
      once('agents.execute', { id: agentId, message: text, mediaIds, background: true }),
    {
      changes: ['chats.list'],
      quiet: true,
      onDone: ({ chatId: made, executionId }, { text }) => {
        addAccepted(made, text, executionId)
        setChatId(made)
      },
    },
  )
  return (
    <section
      aria-label={t.tryIt}
      className="flex h-[32rem] flex-col rounded-xl border border-line bg-panel xl:sticky xl:top-0 xl:h-[calc(100dvh-7rem)]"
    >
      <header className="flex min-h-11 items-center justify-between border-line border-b px-4">
        <h2 className="font-semibold">{t.tryIt}</h2>
        {chatId && <IconButton label={t.startOver} icon={RotateCcw} onClick={() => setChatId(null)} />}
      </header>
      {isChanged && <p className="bg-warn-tint px-4 py-1.5 text-warn text-xs">{t.tryChanged}</p>}
      {chatId ? (
        <Thread key={chatId} chatId={chatId} />
      ) : (
        <>
          <div className="flex-1 p-4">
            {begin.error ? <Problem error={begin.error} /> : <p className="text-soft">{t.tryHelp}</p>}
          </div>
          <div className="px-4 pb-4">
            <Composer
              isQuiet
              draftKey={`try-${agentId}`}
              placeholder={t.tryIt}
              onSend={(text, mediaIds) => begin.mutateAsync({ text, mediaIds })}
              onStop={null}
            />
          </div>
        </>
      )}
    </section>
  )
}
