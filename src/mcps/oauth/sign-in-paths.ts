import { publicAddress, type Settings } from '../../settings.ts'

// The addresses of this service to which the sign-ins at authorization servers lead.

const PATH = '/api/mcps/oauth'
export const START_PATH = `${PATH}/start`
export const CALLBACK_PATH = `${PATH}/callback`
export const CLIENT_PATH = `${PATH}/client.json`

/** Returns the address to which authorization servers send the browser back. */
export const redirectUriOf = (settings: Settings): string => publicAddress(settings) + CALLBACK_PATH

/** Returns the metadata document of this service as a client, whose address is its client id. */
export const clientMetadata = async (settings: Settings) => ({
  client_id: publicAddress(settings) + CLIENT_PATH,
  client_uri: publicAddress(settings),
  redirect_uris: [redirectUriOf(settings)],
  token_endpoint_auth_method: 'none',
  ...(await import('./registration.ts')).CLIENT_METADATA,
})
