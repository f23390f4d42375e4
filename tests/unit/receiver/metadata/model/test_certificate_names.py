"""Which names of a certificate count."""

from receiver.metadata.model.certificate_names import names_of


def test_dns_names_and_uris_count_and_nothing_else():
    told = {
        "subject": ((("commonName", "cn.example"),),),
        "subjectAltName": (
            ("DNS", "Edge7.Plant.EXAMPLE"),
            ("DNS", "edge7.plant.example"),
            ("URI", "spiffe://Plant/Edge7"),
            ("DNS", "*.plant.example"),
            ("DNS", "\u212aiosk.plant.example"),  # `lower` makes a k of it
            ("DNS", "good.example\0.evil.example"),
            ("DNS", "spiffe://plant/other"),
            ("URI", "other.example"),
            ("email", "edge@plant.example"),
            ("IP Address", "10.0.0.7"),
            ("DirName", ((("commonName", "dir.example"),),)),
            ("Registered ID", "1.2.3"),
        ),
    }
    assert names_of(told) == ("edge7.plant.example", "spiffe://Plant/Edge7")
    assert names_of({"subject": told["subject"]}) == ()
