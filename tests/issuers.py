"""An issuer for tests: keys, signed tokens, and the documents that a real issuer publishes."""

from __future__ import annotations

import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from codesdk.tenancy.logins import Issuer, KeysUnavailable

AUDIENCE = "https://codesdk.example.com/mcp"


class Mint:
    """Signs as an issuer would, and in ways that none should."""

    def __init__(self, url: str = "https://login.example.com", audience: str = AUDIENCE) -> None:
        self.url = url
        self.audience = audience
        self.keys: dict[str, Any] = {}
        self.asked: list[str] = []
        self.away = False
        self.add("one")

    def add(self, kid: str, bits: int = 2048) -> None:
        """A new RSA key."""
        self.keys[kid] = rsa.generate_private_key(public_exponent=65537, key_size=bits)

    def add_curve(self, kid: str) -> None:
        """A new key on P-256."""
        self.keys[kid] = ec.generate_private_key(ec.SECP256R1())

    def jwks(self) -> dict[str, Any]:
        """What it publishes."""
        kinds = {
            kid: RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm for kid, key in self.keys.items()
        }
        return {
            "keys": [{**json.loads(kinds[kid].to_jwk(key.public_key())), "kid": kid} for kid, key in self.keys.items()]
        }

    def claims(self, now: float, **more: Any) -> dict[str, Any]:
        """Those of a good token; None takes one away."""
        said = {"iss": self.url, "aud": self.audience, "sub": "u-1", "iat": now, "exp": now + 300, **more}
        return {name: value for name, value in said.items() if value is not None}

    def token(
        self,
        now: float,
        *,
        kid: str | None = "one",
        alg: str = "RS256",
        key: Any = None,
        headers: Any = None,
        **more: Any,
    ) -> str:
        """A signed token; `more`: claims."""
        signing = key if key is not None else self.keys[kid or "one"]
        named = {} if kid is None else {"kid": kid}
        return jwt.encode(self.claims(now, **more), signing, algorithm=alg, headers={**named, **(headers or {})})

    def fetch(self, _issuer: Issuer, url: str) -> dict[str, Any]:
        """In place of the network."""
        self.asked.append(url)
        if self.away:
            raise KeysUnavailable("It is away.")
        if url.endswith("/.well-known/openid-configuration"):
            return {"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}
        return self.jwks()

    def issuer(self, **more: Any) -> Issuer:
        """As an operator would write it."""
        usual = {"issuer": self.url, "audience": self.audience, "tenant": "default", "roles": ["developer"]}
        return Issuer.model_validate({**usual, **more})
