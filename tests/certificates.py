"""Certificates for tests: an authority and the certificates that it signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_PEM = serialization.Encoding.PEM


class Authority:
    """Signs certificates for a server and its clients; every file is in `directory`."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.ca = directory / "ca.pem"
        made = self._built(self._name, self._key, days=(-1, 30)).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        made = made.add_extension(usage, critical=True)
        self.ca.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(_PEM))

    def _built(self, name, key, *, days):
        now = dt.datetime.now(dt.UTC)
        first, last = days
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + dt.timedelta(days=first))
            .not_valid_after(now + dt.timedelta(days=last))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )

    def sign(self, name: str, *, server: bool = False, days=(-1, 30), addresses=("127.0.0.1",)) -> tuple[Path, Path]:
        """Certificate and key."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        built = (
            self._built(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key, days=days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if server:
            names = [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
            built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
        cert, private = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        cert.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(_PEM))
        private.write_bytes(key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        return cert, private
