import org.apache.iotdb.common.rpc.thrift.TSStatus;
import org.apache.iotdb.commons.service.ThriftServiceThread;
import org.apache.iotdb.db.conf.IoTDBConfig;
import org.apache.iotdb.db.conf.IoTDBDescriptor;
import org.apache.iotdb.db.conf.IoTDBStartCheck;
import org.apache.iotdb.db.service.NewIoTDB;
import org.apache.iotdb.db.service.thrift.handler.RPCServiceThriftHandler;
import org.apache.iotdb.db.service.thrift.impl.ClientRPCServiceImpl;
import org.apache.iotdb.service.rpc.thrift.IClientRPCService;
import org.apache.iotdb.service.rpc.thrift.TSInsertRecordReq;

/**
 * Starts a server of 1.0 that is its own config node, with a second port, one above its own.
 *
 * <p>The server's own main does the same, but first compares its settings with those of the start
 * before, and at the first start stumbles over their absence. And its answer to an insertion
 * recommends another node, of no address, which cannot be sent; at the second port that is left
 * out. What is written, and how, is the server's own affair.
 */
public final class IotdbStandalone {
  private IotdbStandalone() {}

  public static void main(String[] args) throws Exception {
    IoTDBStartCheck.getInstance().checkDirectory();
    IoTDBDescriptor.getInstance().reclaimConsensusMemory();
    NewIoTDB.getInstance().active(false);
    IoTDBConfig config = IoTDBDescriptor.getInstance().getConfig();
    Service service = new Service();
    new ThriftServiceThread(
            new IClientRPCService.Processor<IClientRPCService.Iface>(service),
            "second port",
            "second-port",
            "127.0.0.1",
            config.getRpcPort() + 1,
            16,
            60,
            new RPCServiceThriftHandler(service),
            false)
        .start();
  }

  private static final class Service extends ClientRPCServiceImpl {
    @Override
    public TSStatus insertRecord(TSInsertRecordReq request) {
      TSStatus status = super.insertRecord(request);
      status.unsetRedirectNode();
      return status;
    }
  }
}
