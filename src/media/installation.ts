import { hkdfSync } from 'node:crypto'

/**
 * Derives the id of an installation, under which the storage keeps its files. It comes from the master key, so that every
 * server and every copy of one database has the same, no two installations share one, and no row has to be migrated.
 */
export const installationId = (masterKey: Buffer): string =>
  `muster-${Buffer.from(hkdfSync('sha256', masterKey, '', 'muster installation', 8)).toString('hex')}`

export const isInstallationId = (name: string): boolean => /^muster-[0-9a-f]{16}$/.test(name)
