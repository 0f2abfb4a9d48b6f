import { Link2 } from 'lucide-react'
import { callMutation } from '../../api.ts'
import { Button } from '../../components/button.tsx'
import { Problem } from '../../components/page.tsx'
import { readStored, store } from '../../lib/storage.ts'
import { useAction } from '../../queries.ts'
import { texts } from '../../texts.ts'

const t = texts.connection

/** The page whose run waits for the connection: its path and query. */
const WAITING_PAGE = 'muster.waitingPage'

/** Leads back to the page whose run has waited for a connection, if the browser comes from one. */
export function returnToRun(): void {
  const page = readStored('sessionStorage', WAITING_PAGE)
  store('sessionStorage', WAITING_PAGE, null)
  if (page) location.replace(page)
}

type ConnectProps = { mcpId: string; again?: boolean; isForRun?: boolean }

/**
 * Leads to the authorization server of an MCP server, which returns the browser to the server's page. `isForRun`: once
 * connected, the browser comes back here.
 */
export function ConnectButton({ mcpId, again = false, isForRun = false }: ConnectProps) {
  const connect = useAction(() => callMutation('mcps.connect', { id: mcpId }), {
    onDone({ url }) {
      if (isForRun) store('sessionStorage', WAITING_PAGE, location.pathname + location.search)
      location.assign(url)
    },
    quiet: true,
  })
  return (
    <>
      <Button kind="primary" icon={Link2} busy={connect.isPending} onClick={() => connect.mutate(undefined)}>
        {again ? t.again : t.connect}
      </Button>
      {connect.error && <Problem error={connect.error} />}
    </>
  )
}
