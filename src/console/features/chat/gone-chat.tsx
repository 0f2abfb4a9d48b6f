import { Bot } from 'lucide-react'
import { Empty } from '../../components/page.tsx'
import { texts } from '../../texts.ts'
import { Unsent } from './unsent.tsx'

const t = texts.chat

/** Says that a chat cannot be shown. */
export const GoneChat = ({ chatId }: { chatId: string }) => (
  <div className="min-h-0 flex-1 overflow-y-auto p-6">
    <Empty icon={Bot} title={t.goneTitle} text={t.goneText}>
      <Unsent chatId={chatId} />
    </Empty>
  </div>
)
