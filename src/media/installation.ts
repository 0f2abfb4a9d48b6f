import { hkdfSync } from 'node:crypto'

/**
 * Derives the id of an installation, which prefixes its files in the storage. It comes from the master key, so that all
 * servers and copies of one database share it, no two installations do, and no migration is needed.
 */
export const installationId = (masterKey: Buffer): string =>
  `muster-${Buffer.from(hkdfSync('sha256', masterKey, '', 'muster installation', 8)).toString('hex')}`

/** Returns whether a folder's name is the id of an installation. */
export const isInstallationId = (name: string): boolean => /^muster-[0-9a-f]{16}$/.test(name)
