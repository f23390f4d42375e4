package tsferry.realfiles;

import java.security.GeneralSecurityException;
import java.util.Arrays;
import javax.crypto.Cipher;
import javax.crypto.spec.IvParameterSpec;
import javax.crypto.spec.SecretKeySpec;
import org.apache.tsfile.encrypt.IDecryptor;
import org.apache.tsfile.encrypt.IEncrypt;
import org.apache.tsfile.encrypt.IEncryptor;
import org.apache.tsfile.file.metadata.enums.EncryptionType;

/** AES-128 in counter mode from a fixed start: the same bytes each run, and no secret at all. */
public final class Aes implements IEncrypt {
  private final byte[] key;

  public Aes(byte[] key) {
    this.key = key;
  }

  @Override
  public IEncryptor getEncryptor() {
    return new Encryptor();
  }

  @Override
  public IDecryptor getDecryptor() {
    return new Decryptor();
  }

  private byte[] run(byte[] data, int offset, int size) {
    try {
      Cipher cipher = Cipher.getInstance("AES/CTR/NoPadding");
      SecretKeySpec secret = new SecretKeySpec(Arrays.copyOf(key, 16), "AES");
      cipher.init(Cipher.ENCRYPT_MODE, secret, new IvParameterSpec(new byte[16]));
      return cipher.doFinal(data, offset, size);
    } catch (GeneralSecurityException broken) {
      throw new IllegalStateException(broken);
    }
  }

  private final class Encryptor implements IEncryptor {
    @Override
    public byte[] encrypt(byte[] data) {
      return run(data, 0, data.length);
    }

    @Override
    public byte[] encrypt(byte[] data, int offset, int size) {
      return run(data, offset, size);
    }

    @Override
    public EncryptionType getEncryptionType() {
      return EncryptionType.AES128;
    }
  }

  private final class Decryptor implements IDecryptor {
    @Override
    public byte[] decrypt(byte[] data) {
      return run(data, 0, data.length);
    }

    @Override
    public byte[] decrypt(byte[] data, int offset, int size) {
      return run(data, offset, size);
    }

    @Override
    public EncryptionType getEncryptionType() {
      return EncryptionType.AES128;
    }
  }
}
