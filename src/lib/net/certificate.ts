/** Codes of OpenSSL and Node for a certificate that is untrusted, expired or for another name. */
export const CERTIFICATE =
  /^(?:CERT_\w+|CRL_\w+|ERROR_IN_(?:CERT|CRL)_\w+|(?:DEPTH_ZERO_)?SELF_SIGNED_CERT\w*|UNABLE_TO_\w+|INVALID_(?:CA|PURPOSE)|HOSTNAME_MISMATCH|ERR_TLS_CERT\w+)$/
